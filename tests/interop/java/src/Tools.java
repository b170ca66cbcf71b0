import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.bookkeeper.bookie.BookieShell;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.EntryFormatter;
import org.apache.bookkeeper.util.LedgerIdFormatter;

/**
 * Apache BookKeeper's own shell, many commands in one JVM: a line is the configuration file and the command's words, between TABs.
 *
 * <p>What the command prints is followed by a line with TAB, "exit" and its exit code.
 */
public final class Tools {
    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            int code;
            try {
                var conf = new ServerConfiguration();
                conf.loadConf(new File(words[0]).toURI().toURL());
                var shell = new BookieShell(LedgerIdFormatter.newLedgerIdFormatter("long", conf),
                        EntryFormatter.newEntryFormatter("string", conf));
                shell.setConf(conf);
                code = shell.run(Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable failure) {
                failure.printStackTrace(System.out);
                code = 255;
            }
            System.out.println();
            System.out.println("\texit\t" + code);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
