import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;

/**
 * Apache BookKeeper's own client, taking commands as {@link Commands} says.
 *
 * <p>Handles and clients are kept under names the caller chooses. The commands are the cases of {@link #run}.
 */
public final class Session extends Commands {
    private static final HexFormat HEX = HexFormat.of();

    private final Map<String, org.apache.bookkeeper.client.BookKeeper> clients = new HashMap<>();
    private final Map<String, ClientConfiguration> configurations = new HashMap<>();
    private final Map<String, ReadHandle> handles = new HashMap<>();
    private final Map<String, Load> loads = new HashMap<>();
    private final Map<String, CompletableFuture<String>> polls = new HashMap<>();

    public static void main(String[] args) throws Exception {
        new Session().serve();
        Runtime.getRuntime().halt(0);
    }

    @Override
    protected String run(String command) throws Exception {
        return switch (command) {
            case "connect" -> connect();
            case "disconnect" -> disconnect();
            case "create" -> create();
            case "open" -> open();
            case "append" -> append();
            case "fill" -> fill();
            case "write" -> write();
            case "force" -> force();
            case "close" -> close();
            case "read" -> read();
            case "batch-read" -> batchRead();
            case "lac" -> lac();
            case "explicit-lac" -> explicitLac();
            case "poll" -> poll();
            case "poll-result" -> polls.remove(text("poll", "poll")).get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            case "state" -> state();
            case "load" -> load();
            case "load-acked" -> loadAcked();
            case "load-stop" -> loadStop();
            case "delete" -> delete();
            case "list" -> list();
            case "held" -> held();
            case "bookies" -> bookies();
            case "bookie-info" -> bookieInfo();
            case "ping" -> "";
            default -> throw new IllegalArgumentException("unknown command " + command);
        };
    }

    // --- arguments and answers ---

    private org.apache.bookkeeper.client.BookKeeper client() {
        return clients.get(text("client", "main"));
    }

    private ReadHandle handle() {
        ReadHandle handle = handles.get(text("handle", "h"));
        if (handle == null) {
            throw new IllegalArgumentException("no handle " + text("handle", "h"));
        }
        return handle;
    }

    private DigestType digest() {
        return DigestType.valueOf(text("digest", "CRC32C"));
    }

    private byte[] password() {
        return text("password", "").getBytes(StandardCharsets.UTF_8);
    }

    /** Byte i of entry n is (n * 31 + i * 7) mod 256, or what data= says in hex. */
    private byte[] payload(long entry, int size) {
        if (options.containsKey("data")) {
            return HEX.parseHex(options.get("data"));
        }
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) (entry * 31 + i * 7L);
        }
        return bytes;
    }

    // --- clients ---

    private String connect() throws Exception {
        var conf = new ClientConfiguration();
        conf.setMetadataServiceUri(text("uri", ""));
        conf.setUseV2WireProtocol(flag("v2"));
        conf.setThrottleValue(0);
        conf.setProperty("batchReadEnabled", "true");
        for (Map.Entry<String, String> option : options.entrySet()) {
            if (option.getKey().startsWith("conf.")) {
                conf.setProperty(option.getKey().substring(5), option.getValue());
            }
        }
        configurations.put(text("client", "main"), conf);
        clients.put(text("client", "main"), new org.apache.bookkeeper.client.BookKeeper(conf));
        return "";
    }

    private String disconnect() throws Exception {
        clients.remove(text("client", "main")).close();
        return "";
    }

    // --- handles ---

    private String create() throws Exception {
        Map<String, byte[]> custom = new TreeMap<>();
        options.forEach((key, value) -> {
            if (key.startsWith("custom.")) {
                custom.put(key.substring(7), value.getBytes(StandardCharsets.UTF_8));
            }
        });
        var builder = client().newCreateLedgerOp()
                .withEnsembleSize((int) number("e", 3)).withWriteQuorumSize((int) number("qw", 3)).withAckQuorumSize((int) number("qa", 2))
                .withDigestType(digest()).withPassword(password()).withCustomMetadata(custom);
        if (flag("deferred")) {
            builder = builder.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        WriteAdvHandle adv = null;
        WriteHandle plain = null;
        if (flag("adv")) {
            var op = builder.makeAdv();
            adv = await(options.containsKey("ledger") ? op.withLedgerId(number("ledger", 0)).execute() : op.execute());
        } else {
            plain = await(builder.execute());
        }
        ReadHandle made = adv != null ? adv : plain;
        handles.put(text("handle", "h"), made);
        return "\"ledger\":" + made.getId();
    }

    private String open() throws Exception {
        ReadHandle handle = await(client().newOpenLedgerOp().withLedgerId(number("ledger", 0)).withDigestType(digest())
                .withPassword(password()).withRecovery(Boolean.parseBoolean(text("recovery", "true"))).execute());
        handles.put(text("handle", "h"), handle);
        return state();
    }

    private String state() {
        ReadHandle handle = handle();
        var metadata = handle.getLedgerMetadata();
        var ensembles = new ArrayList<String>();
        metadata.getAllEnsembles().forEach((first, bookies) -> {
            var members = new ArrayList<String>();
            bookies.forEach(bookie -> members.add(quote(bookie.getId())));
            ensembles.add("[" + first + ",[" + String.join(",", members) + "]]");
        });
        var custom = new ArrayList<String>();
        metadata.getCustomMetadata().forEach((key, value) -> custom.add(quote(key) + ":" + quote(HEX.formatHex(value))));
        return String.format("\"ledger\":%d,\"lac\":%d,\"length\":%d,\"closed\":%b,\"ensembles\":[%s],\"custom\":{%s}",
                handle.getId(), handle.getLastAddConfirmed(), handle.getLength(), handle.isClosed(),
                String.join(",", ensembles), String.join(",", custom));
    }

    private String close() throws Exception {
        ReadHandle handle = handles.remove(text("handle", "h"));
        await(handle.closeAsync());
        return "\"lac\":" + handle.getLastAddConfirmed();
    }

    // --- writing ---

    private String append() throws Exception {
        WriteHandle writer = (WriteHandle) handle();
        long next = ((LedgerHandle) writer).getLastAddPushed() + 1;
        return "\"entry\":" + await(writer.appendAsync(payload(next, (int) number("size", 100))));
    }

    /** Appends count entries, all in flight at once, sizes size, size + step, ...; waits for all of them. */
    private String fill() throws Exception {
        WriteHandle writer = (WriteHandle) handle();
        long next = ((LedgerHandle) writer).getLastAddPushed() + 1;
        List<CompletableFuture<Long>> sent = new ArrayList<>();
        for (long n = 0; n < number("count", 10); n++) {
            sent.add(writer.appendAsync(payload(next + n, (int) (number("size", 100) + n * number("step", 0)))));
        }
        long last = -1;
        for (CompletableFuture<Long> one : sent) {
            last = await(one);
        }
        return "\"entry\":" + last;
    }

    private String write() throws Exception {
        WriteAdvHandle writer = (WriteAdvHandle) handle();
        List<CompletableFuture<Long>> sent = new ArrayList<>();
        for (String entry : text("entries", "0").split(",")) {
            sent.add(writer.writeAsync(Long.parseLong(entry), payload(Long.parseLong(entry), (int) number("size", 100))));
        }
        for (CompletableFuture<Long> one : sent) {
            await(one);
        }
        return "\"lac\":" + writer.getLastAddConfirmed();
    }

    private String force() throws Exception {
        await(((WriteHandle) handle()).force());
        return "\"lac\":" + handle().getLastAddConfirmed();
    }

    // --- reading ---

    private String summary(LedgerEntries entries) throws Exception {
        var sha = MessageDigest.getInstance("SHA-256");
        long count = 0;
        long bytes = 0;
        long first = -1;
        long last = -1;
        try (entries) {
            for (LedgerEntry entry : entries) {
                byte[] data = entry.getEntryBytes();
                sha.update(data);
                first = first < 0 ? entry.getEntryId() : first;
                last = entry.getEntryId();
                bytes += data.length;
                count++;
            }
        }
        return String.format("\"count\":%d,\"first\":%d,\"last\":%d,\"bytes\":%d,\"sha256\":\"%s\"", count, first, last, bytes,
                HEX.formatHex(sha.digest()));
    }

    private String read() throws Exception {
        ReadHandle reader = handle();
        long first = number("first", 0);
        long last = number("last", reader.getLastAddConfirmed());
        return summary(await(flag("unconfirmed") ? reader.readUnconfirmedAsync(first, last) : reader.readAsync(first, last)));
    }

    private String batchRead() throws Exception {
        return summary(await(handle().batchReadAsync(number("first", 0), (int) number("count", 100), number("bytes", 1 << 20))));
    }

    private String lac() throws Exception {
        return "\"lac\":" + await(handle().readLastAddConfirmedAsync());
    }

    private String explicitLac() throws Exception {
        return "\"lac\":" + ((LedgerHandle) handle()).readExplicitLastConfirmed();
    }

    /** Starts a long poll; poll-result waits for its answer. */
    private String poll() {
        var answer = handle().readLastAddConfirmedAndEntryAsync(number("entry", 0), number("ms", 10000), flag("parallel"))
                .thenApply(found -> {
                    try (found) {
                        return "\"lac\":" + found.getLastAddConfirmed()
                                + (found.getEntry() == null ? "" : ",\"entry\":" + found.getEntry().getEntryId());
                    }
                });
        polls.put(text("poll", "poll"), answer);
        return "";
    }

    // --- load in the background ---

    private final class Load implements Runnable {
        final WriteHandle writer;
        final Semaphore credit;
        final int window;
        final int size;
        final long limit;
        final AtomicLong acked = new AtomicLong();
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final Thread thread = new Thread(this);
        volatile boolean stop;

        Load(WriteHandle writer, int window, int size, long limit) {
            this.writer = writer;
            this.window = window;
            this.size = size;
            this.limit = limit;
            credit = new Semaphore(window);
        }

        @Override
        public void run() {
            long first = ((LedgerHandle) writer).getLastAddPushed() + 1;
            for (long n = first; !stop && failure.get() == null && n < first + limit; n++) {
                credit.acquireUninterruptibly();
                byte[] bytes = new byte[size];
                for (int i = 0; i < size; i++) {
                    bytes[i] = (byte) (n * 31 + i * 7L);
                }
                writer.appendAsync(bytes).whenComplete((id, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else {
                        acked.set(id + 1);
                    }
                    credit.release();
                });
            }
            credit.acquireUninterruptibly(window);
        }
    }

    private String load() {
        var load = new Load((WriteHandle) handle(), (int) number("window", 100), (int) number("size", 100), number("limit", Long.MAX_VALUE));
        loads.put(text("handle", "h"), load);
        load.thread.start();
        return "";
    }

    private String loadAcked() {
        Load load = loads.get(text("handle", "h"));
        return "\"acked\":" + load.acked.get() + ",\"running\":" + load.thread.isAlive();
    }

    /** How many entries were acknowledged (all below that number), and the first failure if there was one. */
    private String loadStop() throws Exception {
        Load load = loads.remove(text("handle", "h"));
        load.stop = true;
        load.thread.join(TIMEOUT_SECONDS * 1000L);
        Throwable failure = load.failure.get();
        if (failure instanceof CompletionException) {
            failure = failure.getCause();
        }
        int code = failure instanceof org.apache.bookkeeper.client.api.BKException known ? known.getCode() : failure == null ? 0 : -999;
        return "\"acked\":" + load.acked.get() + ",\"failure\":" + code;
    }

    // --- administration ---

    private String delete() throws Exception {
        await(client().newDeleteLedgerOp().withLedgerId(number("ledger", 0)).execute());
        return "";
    }

    private String list() throws Exception {
        List<String> ids = new ArrayList<>();
        try (var admin = new BookKeeperAdmin(client(), configurations.get(text("client", "main")))) {
            for (long id : admin.listLedgers()) {
                ids.add(Long.toString(id));
            }
        }
        return "\"ledgers\":[" + String.join(",", ids) + "]";
    }

    /** Which of the entries up to last= the bookie says it holds. */
    private String held() throws Exception {
        List<String> ids = new ArrayList<>();
        try (var admin = new BookKeeperAdmin(client(), configurations.get(text("client", "main")))) {
            var held = await(admin.asyncGetListOfEntriesOfLedger(BookieId.parse(text("bookie", "")), number("ledger", 0)));
            for (long id = 0; id <= number("last", 0); id++) {
                if (held.isEntryAvailable(id)) {
                    ids.add(Long.toString(id));
                }
            }
        }
        return "\"entries\":[" + String.join(",", ids) + "]";
    }

    private String bookies() throws Exception {
        List<String> names = new ArrayList<>();
        try (var admin = new BookKeeperAdmin(client(), configurations.get(text("client", "main")))) {
            var found = text("mode", "writable").equals("writable") ? admin.getAvailableBookies()
                    : text("mode", "").equals("readonly") ? admin.getReadOnlyBookies() : admin.getAllBookies();
            for (BookieId bookie : found) {
                var info = text("mode", "writable").equals("all") ? null : admin.getBookieServiceInfo(bookie);
                names.add(quote(bookie.getId()) + ":" + (info == null || info.getEndpoints().isEmpty() ? "null"
                        : quote(info.getEndpoints().get(0).getProtocol() + " " + info.getEndpoints().get(0).getHost() + ":" + info.getEndpoints().get(0).getPort())));
            }
        }
        return "\"bookies\":{" + String.join(",", names) + "}";
    }

    private String bookieInfo() throws Exception {
        List<String> found = new ArrayList<>();
        client().getBookieInfo().forEach((bookie, info) -> found.add(
                quote(bookie.getId()) + ":[" + info.getFreeDiskSpace() + "," + info.getTotalDiskSpace() + "]"));
        return "\"bookies\":{" + String.join(",", found) + "}";
    }
}
