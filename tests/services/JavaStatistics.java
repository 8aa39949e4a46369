import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.options.Options;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.utils.PartitionStatisticsReporter;

/** Java's report of partitions: KEY=VALUE options, then `--`, a table, and PARTITION MILLISECONDS. */
public class JavaStatistics {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options();
        int at = 0;
        for (; !arguments[at].equals("--"); at++) {
            int equals = arguments[at].indexOf('=');
            options.set(arguments[at].substring(0, equals), arguments[at].substring(equals + 1));
        }
        Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options));
        FileStoreTable table =
                (FileStoreTable) catalog.getTable(Identifier.fromString(arguments[++at]));
        for (at++; at < arguments.length; at += 2) {
            new PartitionStatisticsReporter(table, table.catalogEnvironment().partitionHandler())
                    .report(arguments[at], Long.parseLong(arguments[at + 1]));
        }
        System.out.println("ok");
        System.exit(0);
    }
}
