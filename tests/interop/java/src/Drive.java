import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Drives Apache BookKeeper's own client from a command line, one JSON line per result.
 *
 * <p>usage: Drive COMMAND key=value ...; see README.md beside pom.xml.
 */
public final class Drive {
    private final Map<String, String> options = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Drive drive = new Drive();
        for (int i = 1; i < args.length; i++) {
            int at = args[i].indexOf('=');
            drive.options.put(args[i].substring(0, at), args[i].substring(at + 1));
        }
        int exit = 0;
        try {
            switch (args[0]) {
                case "write-bench" -> drive.writeBench();
                case "read-bench" -> drive.readBench();
                case "tail-bench" -> drive.tailBench();
                case "recover-bench" -> drive.recoverBench();
                case "ledgers-bench" -> drive.ledgersBench();
                case "create" -> drive.create();
                case "read" -> drive.read();
                case "hold" -> drive.hold();
                case "tour" -> drive.tour();
                default -> throw new IllegalArgumentException("unknown command " + args[0]);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            exit = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(exit);
    }

    private String text(String key, String fallback) {
        return options.getOrDefault(key, fallback);
    }

    private int number(String key, int fallback) {
        return Integer.parseInt(text(key, Integer.toString(fallback)));
    }

    private boolean flag(String key, boolean fallback) {
        return Boolean.parseBoolean(text(key, Boolean.toString(fallback)));
    }

    private BookKeeper connect() throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(text("uri", "zk+hierarchical://127.0.0.1:2181/ledgers"));
        conf.setUseV2WireProtocol(flag("v2", false));
        conf.setThrottleValue(0);
        conf.setProperty("batchReadEnabled", text("batch", "true"));
        for (Map.Entry<String, String> option : options.entrySet()) {
            if (option.getKey().startsWith("conf.")) {
                conf.setProperty(option.getKey().substring(5), option.getValue());
            }
        }
        return BookKeeper.newBuilder(conf).build();
    }

    private DigestType digest() {
        return DigestType.valueOf(text("digest", "CRC32C"));
    }

    private byte[] password() {
        return text("password", "").getBytes();
    }

    private CreateBuilder ledgerAsAsked(BookKeeper client) {
        return client.newCreateLedgerOp()
                .withEnsembleSize(number("e", 3)).withWriteQuorumSize(number("qw", 3)).withAckQuorumSize(number("qa", 2))
                .withDigestType(digest()).withPassword(password());
    }

    private WriteAdvHandle newAdvLedger(BookKeeper client) throws Exception {
        return ledgerAsAsked(client).makeAdv().execute().get();
    }

    private WriteHandle newLedger(BookKeeper client) throws Exception {
        var builder = ledgerAsAsked(client);
        if (flag("deferred", false)) {
            builder = builder.withWriteFlags(WriteFlag.DEFERRED_SYNC);
        }
        return builder.execute().get();
    }

    /** Bytes that any other program can make again: byte i of entry n is (n * 31 + i * 7) mod 256. */
    private static byte[] payload(long entry, int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) (entry * 31 + i * 7L);
        }
        return bytes;
    }

    private static double at(long[] sorted, double quantile) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, Math.floor(sorted.length * quantile))] / 1e6;
    }

    private static String quantiles(long[] nanos) {
        Arrays.sort(nanos);
        return String.format("\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f",
                at(nanos, .5), at(nanos, .99), at(nanos, .999), at(nanos, 1));
    }

    private void writeBench() throws Exception {
        int size = number("size", 100);
        int ledgers = number("ledgers", 1);
        int window = number("window", 2000);
        int rate = number("rate", 0); // appends a second; 0: as fast as the window allows
        double seconds = Double.parseDouble(text("seconds", "15"));
        double warm = Double.parseDouble(text("warm", "10"));
        BookKeeper client = connect();
        List<WriteHandle> handles = new ArrayList<>();
        for (int i = 0; i < ledgers; i++) {
            handles.add(newLedger(client));
        }
        byte[] entry = payload(0, size);
        Semaphore credit = new Semaphore(window);
        AtomicLong done = new AtomicLong();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long[] latency = new long[8_000_000];
        long begin = System.nanoTime();
        long measureFrom = begin + (long) (warm * 1e9);
        long end = measureFrom + (long) (seconds * 1e9);
        AtomicLong measured = new AtomicLong();
        for (int i = 0; System.nanoTime() < end && failure.get() == null; i++) {
            while (rate > 0 && i >= (System.nanoTime() - begin) / 1e9 * rate) {
                java.util.concurrent.locks.LockSupport.parkNanos(200_000);
            }
            credit.acquire();
            long sent = System.nanoTime();
            handles.get(i % ledgers).appendAsync(entry).whenComplete((id, error) -> {
                long now = System.nanoTime();
                if (error != null) {
                    failure.set(error);
                } else {
                    done.incrementAndGet();
                    if (now >= measureFrom && now < end) {
                        latency[(int) (measured.getAndIncrement() % latency.length)] = now - sent;
                    }
                }
                credit.release();
            });
        }
        credit.acquire(window);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        int n = (int) measured.get();
        System.out.printf("{\"op\":\"write\",\"v2\":%b,\"size\":%d,\"ledgers\":%d,\"window\":%d,\"adds_per_s\":%.0f,\"mb_per_s\":%.1f,%s,\"ledger\":%d,\"total\":%d}%n",
                flag("v2", false), size, ledgers, window, n / seconds, n / seconds * size / 1e6,
                quantiles(Arrays.copyOf(latency, Math.min(n, latency.length))), handles.get(0).getId(), done.get());
        for (WriteHandle handle : handles) {
            handle.close();
        }
        client.close();
    }

    private void readBench() throws Exception {
        BookKeeper client = connect();
        ReadHandle handle = client.newOpenLedgerOp().withLedgerId(Long.parseLong(options.get("ledger")))
                .withDigestType(digest()).withPassword(password()).withRecovery(false).execute().get();
        int step = number("step", 100);
        int window = number("window", 20);
        boolean batch = flag("batchread", false);
        boolean scatter = flag("scatter", false); // one entry after the other, far from each other: the order of `bench read --scatter`
        int reads = number("reads", 0); // so many entries in each round, those that follow the round before; 0: all of them
        long last = Math.min(handle.getLastAddConfirmed(), Long.parseLong(text("limit", "100000000")));
        for (int round = 0; round < number("rounds", 2); round++) {
            long begin = System.nanoTime();
            AtomicLong bytes = new AtomicLong();
            AtomicLong count = new AtomicLong();
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Semaphore credit = new Semaphore(window);
            if (batch) {
                for (long next = 0; next <= last; ) {
                    try (LedgerEntries entries = handle.batchRead(next, step, 4 << 20)) {
                        for (LedgerEntry entry : entries) {
                            bytes.addAndGet(entry.getLength() > 0 ? entry.getEntryBuffer().readableBytes() : 0);
                            count.incrementAndGet();
                            next = entry.getEntryId() + 1;
                        }
                    }
                }
            } else {
                long begins = (long) round * reads;
                long ends = reads > 0 ? Math.min(last, begins + reads - 1) : last;
                for (long from = begins; from <= ends; from += step) {
                    credit.acquire();
                    long first = scatter ? from * 7919 % (last + 1) : from;
                    handle.readAsync(first, Math.min(last, first + step - 1)).whenComplete((entries, error) -> {
                        if (error != null) {
                            failure.set(error);
                        } else {
                            for (LedgerEntry entry : entries) {
                                bytes.addAndGet(entry.getEntryBuffer().readableBytes());
                                count.incrementAndGet();
                            }
                            entries.close();
                        }
                        credit.release();
                    });
                }
                credit.acquire(window);
            }
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
            double took = (System.nanoTime() - begin) / 1e9;
            System.out.printf("{\"op\":\"%s\",\"v2\":%b,\"round\":%d,\"entries\":%d,\"reads_per_s\":%.0f,\"mb_per_s\":%.1f}%n",
                    batch ? "batch-read" : "read", flag("v2", false), round, count.get(), count.get() / took, bytes.get() / took / 1e6);
        }
        client.close();
    }

    /**
     * One writer, one tailing reader (long poll): how long after the writer's append started the reader holds the entry.
     * The first fifth does not count, nor what came before `warm` seconds were over.
     */
    private void tailBench() throws Exception {
        BookKeeper client = connect();
        BookKeeper other = connect();
        int perSecond = number("rate", 1000);
        int uncounted = (int) (perSecond * Double.parseDouble(text("warm", "0")));
        int n = uncounted + number("count", 10000);
        int size = Math.max(8, number("size", 100));
        WriteHandle writer = newLedger(client);
        ByteBuffer first = ByteBuffer.allocate(size);
        first.putLong(0, System.nanoTime());
        writer.append(first); // bookies refuse a long poll on a ledger they have not heard of
        ReadHandle reader = other.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest())
                .withPassword(password()).withRecovery(false).execute().get();
        long[] latency = new long[n + 2];
        Thread tailing = new Thread(() -> {
            try {
                for (long next = 0; next < n; ) {
                    var found = reader.readLastAddConfirmedAndEntryAsync(next, 1000, false).get();
                    LedgerEntry entry = found.getEntry();
                    if (entry != null) {
                        latency[(int) next++] = System.nanoTime() - entry.getEntryNioBuffer().getLong();
                    }
                    if (found.getLastAddConfirmed() >= next) {
                        try (LedgerEntries entries = reader.read(next, found.getLastAddConfirmed())) {
                            for (LedgerEntry e : entries) {
                                long now = System.nanoTime();
                                latency[(int) next++] = now - e.getEntryNioBuffer().getLong();
                            }
                        }
                    }
                    found.close();
                }
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(2);
            }
        });
        tailing.start();
        long begin = System.nanoTime();
        for (int i = 1; i < n; i++) {
            long due = begin + (long) (i * 1e9 / perSecond);
            long wait = due - System.nanoTime();
            if (wait > 0) {
                TimeUnit.NANOSECONDS.sleep(wait);
            }
            ByteBuffer entry = ByteBuffer.allocate(size);
            entry.putLong(0, System.nanoTime());
            writer.appendAsync(entry);
        }
        writer.force().get();
        writer.append(ByteBuffer.allocate(size));
        tailing.join();
        long[] tail = Arrays.copyOfRange(latency, Math.max(n / 5, uncounted), n);
        System.out.printf("{\"op\":\"tail\",\"v2\":%b,\"rate\":%d,\"count\":%d,%s}%n", flag("v2", false), perSecond, n, quantiles(tail));
    }

    /**
     * A ledger of count entries, left open by its writer; how long another client takes to open it with recovery.
     * Entry 0 is written last: until then nothing is confirmed, so each entry has to be read and written back.
     * Rounds begun before `warm` seconds were over do not count.
     */
    private void recoverBench() throws Exception {
        BookKeeper client = connect();
        BookKeeper other = connect();
        int size = number("size", 100);
        long countFrom = System.nanoTime() + (long) (Double.parseDouble(text("warm", "0")) * 1e9);
        int rounds = number("rounds", 5);
        int round = 0;
        while (round < rounds) {
            boolean counts = System.nanoTime() >= countFrom;
            WriteAdvHandle writer = newAdvLedger(client);
            java.util.concurrent.CompletableFuture<Long> last = null;
            for (long n = 1; n < number("count", 20000); n++) {
                last = writer.writeAsync(n, payload(n, size));
            }
            writer.writeAsync(0, payload(0, size));
            last.get();
            long begin = System.nanoTime();
            ReadHandle handle = other.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest())
                    .withPassword(password()).withRecovery(true).execute().get();
            double took = (System.nanoTime() - begin) / 1e6;
            if (counts) {
                System.out.printf("{\"op\":\"recover\",\"v2\":%b,\"round\":%d,\"entries\":%d,\"ms\":%.3f}%n", flag("v2", false), round,
                        handle.getLastAddConfirmed() + 1, took);
                round++;
            }
            handle.close();
        }
        client.close();
    }

    /** Writes count entries of size bytes (see payload), closes unless close=false, prints the ledger id. */
    /**
     * Creates `count` ledgers, closes, opens and deletes them, `window` at once; how many a second. Rounds begun before
     * `warm` seconds were over do not count.
     */
    private void ledgersBench() throws Exception {
        BookKeeper client = connect();
        int count = number("count", 2000);
        int window = number("window", 100);
        long countFrom = System.nanoTime() + (long) (Double.parseDouble(text("warm", "0")) * 1e9);
        for (int round = 0; round < number("rounds", 3); ) {
            boolean counts = System.nanoTime() >= countFrom;
            List<Integer> numbers = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                numbers.add(i);
            }
            double[] rates = new double[4];
            var writers = all(numbers, window, rates, 0, number -> ledgerAsAsked(client).execute());
            var ids = all(writers, window, rates, 1, writer -> writer.closeAsync().thenApply(closed -> writer.getId()));
            var readers = all(ids, window, rates, 2, id -> client.newOpenLedgerOp().withLedgerId(id)
                    .withDigestType(digest()).withPassword(password()).withRecovery(false).execute());
            all(readers, window, rates, 3, reader -> reader.closeAsync()
                    .thenCompose(closed -> client.newDeleteLedgerOp().withLedgerId(reader.getId()).execute()
                    .thenApply(deleted -> reader)));
            if (counts) {
                System.out.printf("{\"op\":\"ledgers\",\"created\":%.1f,\"closed\":%.1f,\"opened\":%.1f,\"deleted\":%.1f}%n",
                        rates[0], rates[1], rates[2], rates[3]);
                round++;
            }
        }
        client.close();
    }

    /** Does `work` for each item, `window` at once; how many a second goes to `rates`. The results, in order. */
    private static <T, R> List<R> all(List<T> items, int window, double[] rates, int place,
            java.util.function.Function<T, java.util.concurrent.CompletableFuture<R>> work) throws Exception {
        Semaphore credit = new Semaphore(window);
        List<java.util.concurrent.CompletableFuture<R>> underWay = new ArrayList<>();
        long begin = System.nanoTime();
        for (T item : items) {
            credit.acquire();
            underWay.add(work.apply(item).whenComplete((result, error) -> credit.release()));
        }
        List<R> results = new ArrayList<>();
        for (var each : underWay) {
            results.add(each.get());
        }
        rates[place] = items.size() / ((System.nanoTime() - begin) / 1e9);
        return results;
    }

    private void create() throws Exception {
        BookKeeper client = connect();
        int count = number("count", 10);
        int size = number("size", 100);
        long id;
        if (flag("adv", false)) {
            var op = ledgerAsAsked(client).makeAdv();
            WriteAdvHandle handle = options.containsKey("ledger")
                    ? op.withLedgerId(Long.parseLong(options.get("ledger"))).execute().get() : op.execute().get();
            id = handle.getId();
            for (long n = 0; n < count; n++) {
                handle.write(n, payload(n, size));
            }
            if (flag("close", true)) {
                handle.close();
            }
        } else {
            Map<String, byte[]> custom = new HashMap<>();
            if (options.containsKey("metadata")) {
                custom.put(options.get("metadata"), "value".getBytes());
            }
            WriteHandle handle = ledgerAsAsked(client).withCustomMetadata(custom).execute().get();
            id = handle.getId();
            for (long n = 0; n < count; n++) {
                handle.append(payload(n, size));
            }
            if (flag("close", true)) {
                handle.close();
            }
        }
        System.out.printf("{\"op\":\"create\",\"ledger\":%d,\"count\":%d,\"size\":%d}%n", id, count, size);
    }

    /** Opens (recover=true fences and recovers), reads everything, prints count, bytes, last id and one SHA-256 over all payloads. */
    private void read() throws Exception {
        BookKeeper client = connect();
        ReadHandle handle = client.newOpenLedgerOp().withLedgerId(Long.parseLong(options.get("ledger")))
                .withDigestType(digest()).withPassword(password()).withRecovery(flag("recover", true)).execute().get();
        long last = handle.getLastAddConfirmed();
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        long bytes = 0;
        long count = 0;
        for (long from = 0; from <= last; from += 1000) {
            try (LedgerEntries entries = handle.read(from, Math.min(last, from + 999))) {
                Iterator<LedgerEntry> it = entries.iterator();
                while (it.hasNext()) {
                    byte[] data = it.next().getEntryBytes();
                    sha.update(data);
                    bytes += data.length;
                    count++;
                }
            }
        }
        System.out.printf("{\"op\":\"read\",\"ledger\":%s,\"entries\":%d,\"bytes\":%d,\"last\":%d,\"length\":%d,\"closed\":%b,\"sha256\":\"%s\",\"metadata\":\"%s\"}%n",
                options.get("ledger"), count, bytes, last, handle.getLength(), handle.isClosed(), HexFormat.of().formatHex(sha.digest()),
                handle.getLedgerMetadata().toSafeString().replace("\\", "\\\\").replace("\"", "'"));
    }

    /** Opens a ledger for writing, appends one entry per line read from stdin, prints each id; for fencing and failover tests. */
    private void hold() throws Exception {
        BookKeeper client = connect();
        WriteHandle handle = newLedger(client);
        System.out.printf("{\"op\":\"hold\",\"ledger\":%d}%n", handle.getId());
        System.out.flush();
        try (var in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in))) {
            for (String line; (line = in.readLine()) != null; ) {
                try {
                    System.out.printf("{\"op\":\"append\",\"entry\":%d}%n", handle.append(line.getBytes()));
                } catch (Exception e) {
                    System.out.printf("{\"op\":\"append\",\"error\":\"%s\"}%n", e);
                }
                System.out.flush();
            }
        }
        handle.close();
    }

    /** One of every operation that a client can send; fails if any answer is not the expected one. */
    private void tour() throws Exception {
        BookKeeper client = connect();
        // plain ledger, sizes from empty to 70,000 bytes, read back entry by entry and as a range
        WriteHandle writer = newLedger(client);
        int[] sizes = {0, 1, 100, 4096, 70_000};
        for (int n = 0; n < sizes.length; n++) {
            writer.append(payload(n, sizes[n]));
        }
        check("in-order ids", writer.getLastAddConfirmed() == sizes.length - 1);
        ReadHandle peek = client.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest())
                .withPassword(password()).withRecovery(false).execute().get();
        check("lac without recovery", peek.readLastAddConfirmed() >= sizes.length - 2);
        try (LedgerEntries entries = peek.readUnconfirmed(0, sizes.length - 1)) {
            for (LedgerEntry entry : entries) {
                check("payload " + entry.getEntryId(),
                        Arrays.equals(entry.getEntryBytes(), payload(entry.getEntryId(), sizes[(int) entry.getEntryId()])));
            }
        }
        // long poll: the answer comes when the next append moves the confirmed end
        var waiting = flag("v2", false) ? null : peek.readLastAddConfirmedAndEntryAsync(sizes.length - 1, 5000, false);
        writer.append(payload(5, 10));
        writer.append(payload(6, 10));
        if (!flag("v2", false)) { // Java's v2 client has no long poll
            try (var found = waiting.get()) {
                check("long poll", found.getLastAddConfirmed() >= sizes.length - 1);
            }
        }
        // a second client opens with recovery: the first must be fenced out
        BookKeeper second = connect();
        ReadHandle recovered = second.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest())
                .withPassword(password()).withRecovery(true).execute().get();
        check("recovered end", recovered.getLastAddConfirmed() == 6 && recovered.isClosed());
        try {
            writer.append(payload(7, 10));
            check("writer fenced", false);
        } catch (org.apache.bookkeeper.client.api.BKException expected) {
            check("writer fenced: " + expected.getCode(), true);
        }
        if (flag("batchread", flag("v2", false))) {
            try (LedgerEntries entries = recovered.batchRead(0, 100, 1 << 20)) {
                check("batch read", entries.iterator().next().getEntryId() == 0);
            }
        }
        // wrong password
        try {
            second.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest())
                    .withPassword("wrong".getBytes()).withRecovery(true).execute().get();
            check("wrong password refused", false);
        } catch (Exception expected) {
            check("wrong password refused", true);
        }
        // advanced ledger: caller-chosen ids, out of order
        WriteAdvHandle adv = newAdvLedger(client);
        var two = adv.writeAsync(2, payload(2, 20));
        var one = adv.writeAsync(1, payload(1, 20));
        var zero = adv.writeAsync(0, payload(0, 20));
        zero.get();
        one.get();
        two.get();
        check("advanced", adv.getLastAddConfirmed() == 2);
        adv.close();
        // deferred sync and force (protocol v3 only)
        if (!flag("v2", false)) {
            WriteHandle deferred = ledgerAsAsked(client)
                    .withWriteQuorumSize(number("e", 3)).withWriteFlags(WriteFlag.DEFERRED_SYNC).execute().get();
            deferred.append(payload(0, 30));
            deferred.append(payload(1, 30));
            check("deferred lac", deferred.getLastAddConfirmed() == -1);
            deferred.force().get();
            check("forced lac", deferred.getLastAddConfirmed() == 1);
            deferred.close();
            var classic = new org.apache.bookkeeper.client.BookKeeper(classicConf().setExplictLacInterval(50));
            var explicit = classic.createLedger(number("e", 3), number("qw", 3), number("qa", 2),
                    org.apache.bookkeeper.client.BookKeeper.DigestType.fromApiDigestType(digest()), password());
            explicit.addEntry(payload(0, 5));
            explicit.addEntry(payload(1, 5));
            var reader = classic.openLedgerNoRecovery(explicit.getId(),
                    org.apache.bookkeeper.client.BookKeeper.DigestType.fromApiDigestType(digest()), password());
            long lac = -1;
            for (int i = 0; i < 100 && lac < 1; i++) {
                Thread.sleep(50);
                lac = reader.readExplicitLastConfirmed();
            }
            check("explicit lac", lac == 1);
            check("bookie info", !classic.getBookieInfo().isEmpty());
            if (flag("entrylists", true)) try (var admin = new org.apache.bookkeeper.client.BookKeeperAdmin(classic, classicConf())) {
                for (var bookie : explicit.getLedgerMetadata().getAllEnsembles().get(0L)) {
                    var held = admin.asyncGetListOfEntriesOfLedger(bookie, explicit.getId()).get();
                    check("entries held", held.isEntryAvailable(0) == held.isEntryAvailable(1) || number("e", 3) > number("qw", 3));
                }
            }
            explicit.close();
            classic.close();
        }
        client.newDeleteLedgerOp().withLedgerId(writer.getId()).execute().get();
        try {
            second.newOpenLedgerOp().withLedgerId(writer.getId()).withDigestType(digest()).withPassword(password()).execute().get();
            check("deleted", false);
        } catch (Exception expected) {
            check("deleted", true);
        }
        System.out.printf("{\"op\":\"tour\",\"v2\":%b,\"checks\":%d}%n", flag("v2", false), checks);
    }

    private ClientConfiguration classicConf() {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri(text("uri", "zk+hierarchical://127.0.0.1:2181/ledgers"));
        return conf;
    }

    private int checks;

    private void check(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
        checks++;
    }
}
