// The same as program.c, in Java.
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;

public class Program {
    public static void main(String[] words) throws Exception {
        if (words.length != 3) {
            System.exit(2);
        }
        byte[] text = Files.readAllBytes(Paths.get(words[0]));
        String[] names = new File(words[1]).list();
        String line = new String(text, StandardCharsets.UTF_8) + new File(words[0]).length() + " bytes, " + names.length
                + " names, local " + new File("absent").exists() + "\n";
        Files.write(Paths.get(words[2]), line.getBytes(StandardCharsets.UTF_8));
        System.out.println("done");
    }
}
