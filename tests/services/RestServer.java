import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Java's own REST server: data folder, name of the warehouse, token, file for the address. */
public class RestServer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> defaults = new HashMap<>();
        defaults.put("prefix", "paimon");
        RESTCatalogServer server =
                new RESTCatalogServer(
                        arguments[0],
                        new BearTokenAuthProvider(arguments[2]),
                        new ConfigResponse(defaults, new HashMap<>()),
                        arguments[1]);
        server.start();
        Files.writeString(Path.of(arguments[3] + ".new"), server.getUrl());
        Files.move(Path.of(arguments[3] + ".new"), Path.of(arguments[3]));
        Thread.currentThread().join();
    }
}
