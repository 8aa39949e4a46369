import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.options.Options;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.view.View;
import org.apache.paimon.view.ViewChange;
import org.apache.paimon.view.ViewImpl;

/** Views of Java's catalogs: KEY=VALUE options, then `--`, then verbs with their arguments. */
public class JavaViews {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options();
        int at = 0;
        for (; !arguments[at].equals("--"); at++) {
            int equals = arguments[at].indexOf('=');
            options.set(arguments[at].substring(0, equals), arguments[at].substring(equals + 1));
        }
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            for (at++; at < arguments.length; at++) {
                System.out.println(run(catalog, arguments[at].split(" ", 3)));
            }
        }
        System.exit(0);
    }

    private static String run(Catalog catalog, String[] verb) throws Exception {
        switch (verb[0]) {
            case "views":
                List<String> names = new ArrayList<>(catalog.listViews(verb[1]));
                Collections.sort(names);
                return names.toString();
            case "create": // DB.VIEW QUERY, with the one column `id`
                List<DataField> fields = List.of(new DataField(0, "id", DataTypes.INT()));
                Identifier name = Identifier.fromString(verb[1]);
                catalog.createView(
                        name, new ViewImpl(name, fields, verb[2], Map.of(), "by Java", Map.of()),
                        false);
                return "ok";
            case "show":
                View view = catalog.getView(Identifier.fromString(verb[1]));
                return view.query() + " | " + view.rowType() + " | " + view.comment().orElse("");
            case "dialects":
                return new TreeMap<>(catalog.getView(Identifier.fromString(verb[1])).dialects())
                        .toString();
            case "options":
                return new TreeMap<>(catalog.getView(Identifier.fromString(verb[1])).options())
                        .toString();
            case "details": // DB
                return catalog.listViewDetailsPaged(verb[1], null, null, null).getElements()
                        .stream()
                        .map(each -> each.name() + ": " + each.query())
                        .sorted()
                        .collect(Collectors.toList())
                        .toString();
            case "everywhere": // PATTERN
                return catalog.listViewsPagedGlobally(null, verb[1], null, null).getElements()
                        .stream()
                        .map(Identifier::getFullName)
                        .sorted()
                        .collect(Collectors.toList())
                        .toString();
            case "alter": // DB.VIEW KIND [NAME [TEXT]]
                try {
                    catalog.alterView(
                            Identifier.fromString(verb[1]), List.of(change(verb[2])), false);
                    return "ok";
                } catch (Catalog.DialectAlreadyExistException | Catalog.DialectNotExistException e) {
                    return e.getClass().getSimpleName();
                }
            case "functions": // DB
                return catalog.listFunctions(verb[1]).toString();
            case "function": // DB.FUNCTION
                try {
                    return catalog.getFunction(Identifier.fromString(verb[1])).toString();
                } catch (Catalog.FunctionNotExistException e) {
                    return "none";
                }
            case "rename":
                catalog.renameView(
                        Identifier.fromString(verb[1]), Identifier.fromString(verb[2]), false);
                return "ok";
            case "drop":
                catalog.dropView(Identifier.fromString(verb[1]), false);
                return "ok";
            default:
                throw new IllegalArgumentException(verb[0]);
        }
    }

    private static ViewChange change(String text) {
        String[] parts = text.split(" ", 3);
        switch (parts[0]) {
            case "set-option":
                return ViewChange.setOption(parts[1], parts[2]);
            case "remove-option":
                return ViewChange.removeOption(parts[1]);
            case "comment":
                return ViewChange.updateComment(parts[1]);
            case "add-dialect":
                return ViewChange.addDialect(parts[1], parts[2]);
            case "update-dialect":
                return ViewChange.updateDialect(parts[1], parts[2]);
            case "drop-dialect":
                return ViewChange.dropDialect(parts[1]);
            default:
                throw new IllegalArgumentException(parts[0]);
        }
    }
}
