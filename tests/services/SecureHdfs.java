import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.kerby.kerberos.kerb.client.KrbClient;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/**
 * HDFS that asks for Kerberos, and a server of Kerberos. FOLDER, then the ports of the name node, of
 * the server, and three of the data node. In the folder are krb5.conf and ann.ccache, the cache with
 * a ticket of the user `ann`; a file `ready` says that all are there.
 */
public class SecureHdfs {
  private static final String REALM = "@EXAMPLE.COM";

  public static void main(String[] given) throws Exception {
    File folder = new File(given[0]);
    SimpleKdcServer server = new SimpleKdcServer();
    server.setKdcHost("localhost");
    server.setKdcRealm("EXAMPLE.COM");
    server.setKdcTcpPort(Integer.parseInt(given[2]));
    server.setAllowUdp(false);
    server.setWorkDir(folder);
    server.init();
    server.start();
    File services = new File(folder, "services.keytab");
    File user = new File(folder, "ann.keytab");
    for (String name : new String[] {"hdfs/localhost", "HTTP/localhost"}) {
      server.createPrincipal(name, "of " + name);
      server.exportPrincipal(name, services);
    }
    server.createPrincipal("ann", "of ann");
    server.exportPrincipal("ann", user);
    System.setProperty("java.security.krb5.conf", new File(folder, "krb5.conf").getPath());
    KrbClient client = server.getKrbClient();
    client.storeTicket(client.requestTgt("ann" + REALM, user), new File(folder, "ann.ccache"));

    Configuration conf = new Configuration();
    conf.set("hadoop.security.authentication", "kerberos");
    for (String node : new String[] {"namenode", "datanode"}) {
      conf.set("dfs." + node + ".kerberos.principal", "hdfs/localhost" + REALM);
      conf.set("dfs." + node + ".keytab.file", services.getPath());
    }
    conf.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost" + REALM);
    conf.set("dfs.web.authentication.kerberos.keytab", services.getPath());
    conf.set("dfs.block.access.token.enable", "true");
    conf.set("ignore.secure.ports.for.testing", "true");
    conf.set("dfs.permissions.enabled", "false");
    conf.set("dfs.namenode.fs-limits.min-block-size", "1024");
    // Otherwise the data node insists on ports that it has not chosen.
    conf.set("dfs.datanode.address", "localhost:" + given[3]);
    conf.set("dfs.datanode.http.address", "localhost:" + given[4]);
    conf.set("dfs.datanode.ipc.address", "localhost:" + given[5]);
    UserGroupInformation.setConfiguration(conf);
    UserGroupInformation.loginUserFromKeytab("hdfs/localhost" + REALM, services.getPath());
    new MiniDFSCluster.Builder(conf, new File(folder, "data"))
        .numDataNodes(1).nameNodePort(Integer.parseInt(given[1]))
        .checkDataNodeHostConfig(true).checkDataNodeAddrConfig(true)
        .build().waitActive();
    Files.writeString(Path.of(given[0], "ready"), "ready");
    Thread.currentThread().join();
  }
}
