import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/** HDFS in one process: FOLDER PORT SECOND-PORT READY-FILE. Two name nodes if SECOND-PORT is not 0. */
public class MiniHdfs {
  public static void main(String[] given) throws Exception {
    int first = Integer.parseInt(given[1]);
    int second = Integer.parseInt(given[2]);
    Configuration conf = new Configuration();
    conf.set("dfs.permissions.enabled", "false");
    conf.set("dfs.namenode.fs-limits.min-block-size", "1024");
    // A deleted file is gone; a test server needs no time to look for others.
    conf.set("dfs.namenode.replication.min", "1");
    MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(conf, new File(given[0]))
        .numDataNodes(1).checkDataNodeHostConfig(true);
    if (second == 0) {
      builder.nameNodePort(first);
    } else {
      builder.nnTopology(new MiniDFSNNTopology().addNameservice(
          new MiniDFSNNTopology.NSConf("lake")
              .addNN(new MiniDFSNNTopology.NNConf("nn1").setIpcPort(first))
              .addNN(new MiniDFSNNTopology.NNConf("nn2").setIpcPort(second))));
    }
    MiniDFSCluster cluster = builder.build();
    if (second != 0) {
      cluster.transitionToActive(0);
    }
    cluster.waitActive(0);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> cluster.shutdown(true)));
    Files.writeString(Path.of(given[3]), "ready");
    // Each line of the input makes the other name node the active one.
    int active = 0;
    while (true) {
      int read = System.in.read();
      if (read < 0) {
        Thread.currentThread().join();
      }
      if (read == '\n' && second != 0) {
        cluster.transitionToStandby(active);
        active = 1 - active;
        cluster.transitionToActive(active);
        System.out.println("active " + active);
        System.out.flush();
      }
    }
  }
}
