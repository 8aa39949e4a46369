import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Starts a Hive Metastore whose database also has the tables of locks. */
public class Launch {
    public static void main(String[] arguments) throws Throwable {
        try {
            TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
        } catch (Exception alreadyThere) {
            // After a restart.
        }
        HiveMetaStore.main(arguments);
    }
}
