import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Prints Debezium's events, one a line: topic, key and value in Base64, - for null. */
public class Changes {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        Properties settings = new Properties();
        for (String each : arguments) {
            int at = each.indexOf('=');
            settings.put(each.substring(0, at), each.substring(at + 1));
        }
        DebeziumEngine<ChangeEvent<String, String>> engine =
                DebeziumEngine.create(Json.class)
                        .using(settings)
                        .using((ok, message, error) -> out.println("END " + ok + " " + message))
                        .notifying(
                                event -> {
                                    out.println(
                                            "EVENT "
                                                    + event.destination()
                                                    + " "
                                                    + encoded(event.key())
                                                    + " "
                                                    + encoded(event.value()));
                                    out.flush();
                                })
                        .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        System.in.read(); // the tests close it when they have enough
        engine.close();
        System.exit(0);
    }

    private static String encoded(String text) {
        return text == null ? "-" : Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
