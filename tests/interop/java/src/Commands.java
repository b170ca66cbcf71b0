import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.distributedlog.exceptions.DLException;

/**
 * A process that takes commands: one line in, one JSON line out.
 *
 * <p>A line is a command and key=value pairs, values URL-encoded, separated by blanks: <code>append handle=w data=00ff</code>.
 * The answer has "ok"; if that is false, also "error" (the exception's class), "code" (the library's result code) and "message".
 */
abstract class Commands {
    static final int TIMEOUT_SECONDS = 90;

    protected Map<String, String> options = Map.of();

    /** Carries out one command, whose arguments are in options; the fields of the answer. */
    protected abstract String run(String command) throws Exception;

    final void serve() throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String answer;
            try {
                String[] words = line.trim().split(" +");
                options = new HashMap<>();
                for (int i = 1; i < words.length; i++) {
                    int at = words[i].indexOf('=');
                    options.put(words[i].substring(0, at), URLDecoder.decode(words[i].substring(at + 1), StandardCharsets.UTF_8));
                }
                String fields = run(words[0]);
                answer = "{\"ok\":true" + (fields.isEmpty() ? "" : "," + fields) + "}";
            } catch (Throwable failure) {
                answer = refusal(failure);
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String refusal(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String code = cause instanceof org.apache.bookkeeper.client.api.BKException known ? "," + "\"code\":" + known.getCode()
                : cause instanceof DLException known ? "," + "\"code\":" + known.getCode() : "";
        return "{\"ok\":false,\"error\":" + quote(cause.getClass().getSimpleName()) + code + ",\"message\":" + quote("" + cause.getMessage()) + "}";
    }

    // --- arguments and answers ---

    protected final String text(String key, String fallback) {
        return options.getOrDefault(key, fallback);
    }

    protected final long number(String key, long fallback) {
        return Long.parseLong(text(key, Long.toString(fallback)));
    }

    protected final boolean flag(String key) {
        return Boolean.parseBoolean(text(key, "false"));
    }

    protected static String quote(String text) {
        var out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 32) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    protected static <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }
}
