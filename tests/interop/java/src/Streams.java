import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.distributedlog.DLSN;
import org.apache.distributedlog.DistributedLogConfiguration;
import org.apache.distributedlog.LogRecord;
import org.apache.distributedlog.LogRecordSet;
import org.apache.distributedlog.LogRecordWithDLSN;
import org.apache.distributedlog.api.AsyncLogReader;
import org.apache.distributedlog.api.AsyncLogWriter;
import org.apache.distributedlog.api.DistributedLogManager;
import org.apache.distributedlog.api.LogReader;
import org.apache.distributedlog.api.namespace.Namespace;
import org.apache.distributedlog.api.namespace.NamespaceBuilder;
import org.apache.distributedlog.exceptions.EndOfStreamException;
import org.apache.distributedlog.impl.metadata.BKDLConfig;
import org.apache.distributedlog.io.CompressionCodec;
import org.apache.distributedlog.metadata.DLMetadata;

/**
 * Apache DistributedLog's own library, taking commands as {@link Commands} says.
 *
 * <p>Namespaces and writers are kept under names the caller chooses; lists are separated by commas, payloads are in hex,
 * a position is [segment, entry, slot]. The commands are the cases of {@link #run}.
 */
public final class Streams extends Commands {
    private static final HexFormat HEX = HexFormat.of();
    private static final int STUCK_SECONDS = 20;

    private final Map<String, Namespace> namespaces = new HashMap<>();
    private final Map<String, DistributedLogManager> logs = new HashMap<>();
    private final Map<String, AsyncLogWriter> writers = new HashMap<>();

    public static void main(String[] args) throws Exception {
        new Streams().serve();
        Runtime.getRuntime().halt(0);
    }

    @Override
    protected String run(String command) throws Exception {
        return switch (command) {
            case "bind" -> bind();
            case "connect" -> connect();
            case "disconnect" -> disconnect();
            case "create" -> create();
            case "list" -> list();
            case "drop" -> drop();
            case "writer" -> writer();
            case "write" -> write();
            case "write-set" -> writeSet();
            case "end" -> "\"txid\":" + await(writers.get(text("handle", "w")).markEndOfStream());
            case "truncate" -> "\"done\":" + await(writers.get(text("handle", "w")).truncate(position(text("before", ""))));
            case "close" -> close();
            case "abort" -> abort();
            case "read" -> read();
            case "follow" -> follow();
            case "subscribed" -> subscribed();
            case "segments" -> segments();
            case "ends" -> ends();
            case "find" -> "\"position\":" + show(await(log().getDLSNNotLessThanTxId(number("txid", 0))));
            case "recover" -> recover();
            case "ping" -> "";
            default -> throw new IllegalArgumentException("unknown command " + command);
        };
    }

    // --- arguments and answers ---

    private List<String> several(String key) {
        return Arrays.asList(text(key, "").split(",", -1));
    }

    private static DLSN position(String text) {
        long[] numbers = Arrays.stream(text.split(",")).mapToLong(Long::parseLong).toArray();
        return new DLSN(numbers[0], numbers[1], numbers[2]);
    }

    private static String show(DLSN position) {
        return String.format("[%d,%d,%d]", position.getLogSegmentSequenceNo(), position.getEntryId(), position.getSlotId());
    }

    /** Position, transaction id, sequence id, payload. */
    private static String show(LogRecordWithDLSN record) {
        return String.format("[%s,%d,%d,%s]", show(record.getDlsn()), record.getTransactionId(), record.getSequenceId(),
                quote(HEX.formatHex(record.getPayload())));
    }

    // --- namespaces ---

    private DistributedLogConfiguration configuration() {
        var conf = new DistributedLogConfiguration();
        options.forEach((key, value) -> {
            if (key.startsWith("conf.")) {
                conf.setProperty(key.substring(5), value);
            }
        });
        return conf;
    }

    private String bind() throws Exception {
        var config = new BKDLConfig(text("servers", ""), text("ledgers", ""));
        config.setFirstLogSegmentSeqNo(1L); // as Java's own tool has it
        config.setFederatedNamespace(flag("federated"));
        DLMetadata.create(config).create(URI.create(text("uri", "")));
        return "";
    }

    private String connect() throws Exception {
        namespaces.put(text("namespace", "n"), NamespaceBuilder.newBuilder().conf(configuration()).uri(URI.create(text("uri", "")))
                .clientId(text("client", "java")).build());
        return "";
    }

    private String disconnect() throws Exception {
        namespaces.remove(text("namespace", "n")).close();
        return "";
    }

    private Namespace namespace() {
        return namespaces.get(text("namespace", "n"));
    }

    private String create() throws Exception {
        namespace().createLog(text("log", ""));
        return "";
    }

    private String drop() throws Exception {
        namespace().deleteLog(text("log", ""));
        return "";
    }

    private String list() throws Exception {
        var names = new TreeSet<String>();
        for (Iterator<String> found = namespace().getLogs(); found.hasNext(); ) {
            names.add(quote(found.next()));
        }
        return "\"logs\":[" + String.join(",", names) + "]";
    }

    /** One manager for each log: closing it would end its writers. */
    private DistributedLogManager log() throws Exception {
        String key = text("namespace", "n") + " " + text("log", "");
        if (!logs.containsKey(key)) {
            logs.put(key, namespace().openLog(text("log", "")));
        }
        return logs.get(key);
    }

    // --- writing ---

    private String writer() throws Exception {
        AsyncLogWriter writer = await(log().openAsyncLogWriter());
        writers.put(text("handle", "w"), writer);
        return "\"txid\":" + writer.getLastTxId();
    }

    /** All records are on their way at once, unless each=true; with bulk=true by one call. */
    private String write() throws Exception {
        AsyncLogWriter writer = writers.get(text("handle", "w"));
        List<String> data = several("data");
        List<String> txids = several("txids");
        var records = new ArrayList<LogRecord>();
        for (int i = 0; i < data.size(); i++) {
            records.add(new LogRecord(Long.parseLong(txids.get(i)), HEX.parseHex(data.get(i))));
        }
        List<CompletableFuture<DLSN>> sent = new ArrayList<>();
        if (flag("bulk")) {
            sent = await(writer.writeBulk(records));
        } else {
            for (LogRecord record : records) {
                sent.add(writer.write(record));
                if (flag("each")) {
                    await(sent.get(sent.size() - 1));
                }
            }
        }
        return "\"positions\":" + positions(sent);
    }

    private String writeSet() throws Exception {
        var set = LogRecordSet.newWriter(1024, CompressionCodec.Type.valueOf(text("codec", "NONE")));
        List<CompletableFuture<DLSN>> sent = new ArrayList<>();
        for (String data : several("data")) {
            var written = new CompletableFuture<DLSN>();
            set.writeRecord(ByteBuffer.wrap(HEX.parseHex(data)), written);
            sent.add(written);
        }
        var record = new LogRecord(number("txid", 0), set.getBuffer());
        record.setRecordSet();
        DLSN first = await(writers.get(text("handle", "w")).write(record));
        set.completeTransmit(first.getLogSegmentSequenceNo(), first.getEntryId(), first.getSlotId());
        return "\"positions\":" + positions(sent);
    }

    private static String positions(List<CompletableFuture<DLSN>> sent) throws Exception {
        var found = new ArrayList<String>();
        for (CompletableFuture<DLSN> one : sent) {
            found.add(show(await(one)));
        }
        return "[" + String.join(",", found) + "]";
    }

    private String close() throws Exception {
        await(writers.remove(text("handle", "w")).asyncClose());
        return "";
    }

    /** Leaves the segment in progress. */
    private String abort() throws Exception {
        await(writers.remove(text("handle", "w")).asyncAbort());
        return "";
    }

    private String recover() throws Exception {
        log().recover();
        return "";
    }

    // --- reading ---

    /**
     * From a position or a transaction id to what can be read now; "end" says whether the log was sealed.
     *
     * <p>The reader gives nothing at the end, and also before it, between two segments, when the machine is slow. Once in
     * some hundred runs it never goes on, with nothing under way: another one does.
     */
    private String read() throws Exception {
        var found = new ArrayList<String>();
        LogRecordWithDLSN last = log().getLastLogRecord();
        boolean sealed = log().isEndOfStreamMarked();
        long least = number("txid", Long.MIN_VALUE);
        DLSN next = position(text("from", "1,0,0"));
        boolean more = last.getTransactionId() >= least && last.getDlsn().compareTo(next) >= 0;
        boolean byTxid = options.containsKey("txid");
        LogReader reader = byTxid ? log().openLogReader(least) : log().openLogReader(next);
        long begun = System.nanoTime();
        long heard = begun;
        try {
            while (more || sealed) {
                LogRecordWithDLSN record = reader.readNext(true);
                long now = System.nanoTime();
                if (record != null) {
                    found.add(show(record));
                    next = record.getDlsn().getNextDLSN();
                    byTxid = false;
                    more = record.getDlsn().compareTo(last.getDlsn()) < 0;
                    heard = now;
                } else if (now - begun > TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS)) {
                    throw new TimeoutException("the reader stays behind " + show(last));
                } else if (now - heard > TimeUnit.SECONDS.toNanos(STUCK_SECONDS)) {
                    System.err.println("a reader does not go on, another one begins at " + next);
                    reader.close();
                    reader = byTxid ? log().openLogReader(least) : log().openLogReader(next);
                    heard = now;
                } else {
                    Thread.sleep(2);
                }
            }
        } catch (EndOfStreamException end) {
            return records(found) + ",\"end\":true";
        } finally {
            reader.close();
        }
        return records(found) + ",\"end\":false";
    }

    private static String records(List<String> found) {
        return "\"records\":[" + String.join(",", found) + "]";
    }

    /** The next count= records from a position, by Java's asynchronous reader, which waits for them. */
    private String follow() throws Exception {
        AsyncLogReader reader = await(log().openAsyncLogReader(position(text("from", ""))));
        var found = new ArrayList<String>();
        try {
            for (long n = 0; n < number("count", 0); n++) {
                found.add(show(await(reader.readNext())));
            }
        } finally {
            await(reader.asyncClose());
        }
        return records(found);
    }

    /** The next count= records of a subscriber, whose position is that of the last one then. */
    private String subscribed() throws Exception {
        String subscriber = text("subscriber", "");
        AsyncLogReader reader = await(log().getAsyncLogReaderWithLock(subscriber));
        var found = new ArrayList<String>();
        DLSN last = null;
        for (long n = 0; n < number("count", 0); n++) {
            LogRecordWithDLSN record = await(reader.readNext());
            found.add(show(record));
            last = record.getDlsn();
        }
        await(log().getSubscriptionsStore().advanceCommitPosition(subscriber, last));
        await(reader.asyncClose());
        return records(found);
    }

    // --- what the records of a log say ---

    private String segments() throws Exception {
        var found = new ArrayList<String>();
        for (var segment : log().getLogSegments()) {
            found.add(String.format("{\"number\":%d,\"ledger\":%d,\"completed\":%b,\"truncated\":\"%s\",\"records\":%d,\"first_txid\":%d,"
                            + "\"last_txid\":%d,\"start\":%d,\"last\":%s,\"first_left\":%s}", segment.getLogSegmentSequenceNumber(),
                    segment.getLogSegmentId(), !segment.isInProgress(),
                    segment.isTruncated() ? "TRUNCATED" : segment.isPartiallyTruncated() ? "PARTIALLY_TRUNCATED" : "ACTIVE",
                    segment.getRecordCount(), segment.getFirstTxId(), segment.getLastTxId(), segment.getStartSequenceId(),
                    show(segment.getLastDLSN()), show(segment.getMinActiveDLSN())));
        }
        return "\"segments\":[" + String.join(",", found) + "]";
    }

    /** The first and the last record, how many there are, and whether the log is sealed. */
    private String ends() throws Exception {
        return String.format("\"first\":%s,\"last\":%s,\"count\":%d,\"sealed\":%b", show(await(log().getFirstLogRecordAsync())),
                show(log().getLastLogRecord()), log().getLogRecordCount(), log().isEndOfStreamMarked());
    }
}
