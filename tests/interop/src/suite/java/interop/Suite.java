package interop;

import com.alibaba.fastjson.JSON;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs JUnit classes by name, and prints a JSON line for each test: its name, how it ended, and how long it took. */
public final class Suite extends RunListener {
    /** Tests print as they like; standard output has nothing but the results. */
    private static final PrintStream RESULTS = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    private final Map<Description, Failure> failures = new HashMap<>();
    private final Map<Description, Long> begun = new HashMap<>();

    private Suite() {
    }

    public static void main(String[] classes) throws Exception {
        System.setOut(System.err);
        for (String name : classes) {
            JUnitCore core = new JUnitCore();
            core.addListener(new Suite());
            core.run(Class.forName(name));
        }
        print("done", null, "", 0);
        System.exit(0); // clients leave threads behind
    }

    @Override
    public void testStarted(Description test) {
        begun.put(test, System.nanoTime());
    }

    @Override
    public void testFailure(Failure failure) {
        Description test = failure.getDescription();
        failures.put(test, failure);
        if (!test.isTest()) { // what is before or after all tests of a class
            testFinished(test);
        }
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        testFailure(failure);
    }

    @Override
    public void testIgnored(Description test) {
        print("ignored", test, "", 0);
    }

    @Override
    public void testFinished(Description test) {
        long took = (System.nanoTime() - begun.getOrDefault(test, System.nanoTime())) / 1_000_000;
        Failure failure = failures.get(test);
        print(failure == null ? "passed" : "failed", test, failure == null ? "" : failure.getTrace(), took);
    }

    private static synchronized void print(String kind, Description test, String trace, long milliseconds) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("class", test == null ? "" : test.getClassName());
        line.put("test", test == null || test.getMethodName() == null ? "" : test.getMethodName());
        line.put("ms", milliseconds);
        line.put("trace", trace);
        RESULTS.println(JSON.toJSONString(line));
    }
}
