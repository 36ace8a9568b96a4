import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs commands of mqadmin in one Java: a line on the input is one, its words are parted by tabs.
    A line on the output is what the command printed, in base64. */
public final class Tools {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true, "UTF-8");
            System.setOut(stream);
            System.setErr(stream);
            try {
                forgetCommands();
                MQAdminStartup.main0(line.split("\t"), null);
            } catch (Throwable failure) {
                failure.printStackTrace(stream);
            }
            stream.flush();
            answers.println(Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }

    /** A command keeps its producer, which does not start a second time: new commands are made each time. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
