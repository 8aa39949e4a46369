import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.options.Options;
import org.apache.paimon.partition.Partition;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.table.Table;
import org.apache.paimon.types.DataTypes;

/** Java's catalogs for the tests: KEY=VALUE options, then `--`, then verbs with their arguments. */
public class JavaCatalog {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options();
        int at = 0;
        for (; !arguments[at].equals("--"); at++) {
            int equals = arguments[at].indexOf('=');
            options.set(arguments[at].substring(0, equals), arguments[at].substring(equals + 1));
        }
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            for (at++; at < arguments.length; at++) {
                String[] verb = arguments[at].split(" ");
                System.out.println(
                        verb[0].equals("race") ? race(options, verb) : run(catalog, verb));
            }
        }
        System.exit(0);
    }

    private static String run(Catalog catalog, String[] verb) throws Exception {
        switch (verb[0]) {
            case "databases":
                return sorted(catalog.listDatabases());
            case "tables":
                return sorted(catalog.listTables(verb[1]));
            case "create-database":
                catalog.createDatabase(verb[1], true);
                return "ok";
            case "drop-database":
                catalog.dropDatabase(verb[1], false, true);
                return "ok";
            case "create": // DB.TABLE [KEY=VALUE...]
                Schema.Builder builder =
                        Schema.newBuilder()
                                .column("id", DataTypes.INT().notNull(), "the key")
                                .column("v", DataTypes.STRING())
                                .column("dt", DataTypes.STRING().notNull())
                                .option("bucket", "1")
                                .comment("made by Java");
                List<String> keys = new ArrayList<>(List.of("id"));
                for (int i = 2; i < verb.length; i++) {
                    if (verb[i].equals("partitioned")) {
                        keys.add("dt");
                        builder.partitionKeys("dt");
                    } else {
                        String[] option = verb[i].split("=", 2);
                        builder.option(option[0], option[1]);
                    }
                }
                catalog.createTable(table(verb[1]), builder.primaryKey(keys).build(), false);
                return "ok";
            case "add-column":
                catalog.alterTable(
                        table(verb[1]),
                        List.of(SchemaChange.addColumn(verb[2], DataTypes.INT())),
                        false);
                return "ok";
            case "set-option":
                catalog.alterTable(
                        table(verb[1]), List.of(SchemaChange.setOption(verb[2], verb[3])), false);
                return "ok";
            case "rename":
                catalog.renameTable(table(verb[1]), table(verb[2]), false);
                return "ok";
            case "drop":
                catalog.dropTable(table(verb[1]), false);
                return "ok";
            case "tag":
                catalog.getTable(table(verb[1])).createTag(verb[2]);
                return "ok";
            case "delete-tag":
                catalog.getTable(table(verb[1])).deleteTag(verb[2]);
                return "ok";
            case "partitions": // DB.TABLE: the spec, rows and files of each
                List<String> found = new ArrayList<>();
                for (Partition each : catalog.listPartitions(table(verb[1]))) {
                    found.add(each.spec() + " " + each.recordCount() + " " + each.fileCount());
                }
                return sorted(found);
            case "mark-done": // DB.TABLE KEY VALUE
                catalog.markDonePartitions(table(verb[1]), List.of(Map.of(verb[2], verb[3])));
                return "ok";
            case "repair":
                catalog.repairTable(table(verb[1]));
                return "ok";
            case "options":
                return new java.util.TreeMap<>(catalog.getTable(table(verb[1])).options()).toString();
            case "fields":
                return catalog.getTable(table(verb[1])).rowType().getFieldNames().toString();
            case "write": // DB.TABLE FIRST COUNT [DT]: a commit for each key
                int first = Integer.parseInt(verb[2]);
                for (int i = first; i < first + Integer.parseInt(verb[3]); i++) {
                    write(catalog.getTable(table(verb[1])), i, verb.length > 4 ? verb[4] : "x");
                }
                return "ok";
            case "read":
                return read(catalog.getTable(table(verb[1])));
            default:
                throw new IllegalArgumentException(verb[0]);
        }
    }

    /** DB.TABLE FIRST WRITERS COMMITS: each writer has a thread and a catalog of its own. */
    private static String race(Options options, String[] verb) throws Exception {
        int first = Integer.parseInt(verb[2]);
        int commits = Integer.parseInt(verb[4]);
        List<java.util.concurrent.CompletableFuture<Void>> writers = new ArrayList<>();
        for (int writer = 0; writer < Integer.parseInt(verb[3]); writer++) {
            int from = first + writer * commits;
            writers.add(
                    java.util.concurrent.CompletableFuture.runAsync(
                            () -> {
                                try (Catalog own =
                                        CatalogFactory.createCatalog(
                                                CatalogContext.create(options))) {
                                    for (int id = from; id < from + commits; id++) {
                                        write(own.getTable(table(verb[1])), id, "x");
                                    }
                                } catch (Exception error) {
                                    throw new RuntimeException(error);
                                }
                            },
                            task -> new Thread(task).start()));
        }
        for (var writer : writers) {
            writer.get();
        }
        return "ok";
    }

    private static void write(Table table, int id, String dt) throws Exception {
        var builder = table.newBatchWriteBuilder();
        int width = table.rowType().getFieldCount();
        GenericRow row = new GenericRow(width);
        row.setField(0, id);
        row.setField(1, BinaryString.fromString("java"));
        row.setField(2, BinaryString.fromString(dt));
        try (var write = builder.newWrite();
                var commit = builder.newCommit()) {
            write.write(row);
            commit.commit(write.prepareCommit());
        }
    }

    private static String read(Table table) throws Exception {
        var builder = table.newReadBuilder();
        List<Integer> ids = new ArrayList<>();
        try (RecordReader<InternalRow> reader =
                builder.newRead().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(row -> ids.add(row.getInt(0)));
        }
        return sorted(ids);
    }

    private static Identifier table(String name) {
        return Identifier.fromString(name);
    }

    private static <T extends Comparable<T>> String sorted(List<T> values) {
        return new ArrayList<>(values).stream().sorted().toList().toString();
    }
}
