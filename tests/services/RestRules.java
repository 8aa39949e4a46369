import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.Transform;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;
import org.apache.paimon.table.Table;
import org.apache.paimon.utils.JsonSerdeUtil;

/**
 * Java's own REST server, which filters and masks rows as it is told on standard input, and Java's
 * client of the same version. Arguments: data folder, name of the warehouse, token. The first line
 * of output is the address; each command is answered by lines and a line "end".
 */
public class RestRules {
    private static final Map<String, Map<String, Transform>> MASKS = new HashMap<>();

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
        System.out.println(server.getUrl());
        Options options = new Options();
        options.set("metastore", "rest");
        options.set("uri", server.getUrl());
        options.set("warehouse", arguments[1]);
        options.set("token.provider", "bear");
        options.set("token", arguments[2]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            try (Catalog catalog =
                    CatalogFactory.createCatalog(CatalogContext.create(options))) {
                run(server, catalog, line.split("\t"));
            } catch (Throwable error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                System.out.println("error " + cause);
            }
            System.out.println("end");
        }
        System.exit(0);
    }

    private static void run(RESTCatalogServer server, Catalog catalog, String[] command)
            throws Exception {
        Identifier table = Identifier.fromString(command[1]);
        switch (command[0]) {
            case "filter": // TABLE [JSON...]
                List<Predicate> filters = new ArrayList<>();
                for (int i = 2; i < command.length; i++) {
                    filters.add(JsonSerdeUtil.fromJson(command[i], Predicate.class));
                }
                server.setRowFilterAuth(table, filters);
                break;
            case "mask": // TABLE COLUMN JSON
                Map<String, Transform> masks =
                        MASKS.computeIfAbsent(command[1], name -> new HashMap<>());
                masks.put(command[2], JsonSerdeUtil.fromJson(command[3], Transform.class));
                server.setColumnMaskingAuth(table, masks);
                break;
            case "unmask": // TABLE
                MASKS.remove(command[1]);
                server.setColumnMaskingAuth(table, new HashMap<>());
                break;
            case "allow": // TABLE COLUMN,COLUMN
                server.addTableColumnAuth(table, Arrays.asList(command[2].split(",")));
                break;
            case "rows": // TABLE COLUMN,COLUMN
                rows(catalog.getTable(table), Arrays.asList(command[2].split(",")));
                break;
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private static void rows(Table table, List<String> columns) throws Exception {
        int[] projection = table.rowType().getFieldIndices(columns);
        var builder = table.newReadBuilder().withProjection(projection);
        InternalRow.FieldGetter[] getters = new InternalRow.FieldGetter[projection.length];
        for (int i = 0; i < projection.length; i++) {
            // A mask may be null where the column is not.
            getters[i] =
                    InternalRow.createFieldGetter(
                            table.rowType().getTypeAt(projection[i]).copy(true), i);
        }
        List<String> found = new ArrayList<>();
        try (RecordReader<InternalRow> reader =
                builder.newRead().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(
                    row -> {
                        List<String> values = new ArrayList<>();
                        for (InternalRow.FieldGetter getter : getters) {
                            values.add(String.valueOf(getter.getFieldOrNull(row)));
                        }
                        found.add(String.join("|", values));
                    });
        }
        found.stream().sorted().forEach(System.out::println);
    }
}
