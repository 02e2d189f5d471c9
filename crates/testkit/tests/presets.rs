//! Runs `larder image npm` and the other presets with the real package managers. The packages come
//! from files and repositories in the test, so no network is needed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{Place, Ran, Run, Server, larder_text, program};

/// A package manager, and a project with one dependency.
struct Project {
    preset: &'static str,
    /// The program, as [`program`] finds it, or a name on this machine's `PATH`.
    program: &'static str,
    /// Makes the project with its lock file.
    make: &'static str,
    /// Prints `dependency 1` if the dependency can be used.
    works: &'static str,
    /// Changes the lock file.
    changed: &'static str,
    /// The paths that the preset keeps, as arguments of `rm -rf`.
    kept: &'static str,
}

/// A package of npm as a file `dep.tgz`.
const TARBALL: &str = "mkdir package && echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' > package/package.json &&
    echo 'console.log(\"dependency 1\")' > package/index.js && tar -czf dep.tgz package && rm -r package &&
    echo '{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{\"dep\":\"file:dep.tgz\"}}' > package.json";

/// A wheel, which is a zip archive.
const WHEEL: &str = "python3 - <<'END'
import zipfile
with zipfile.ZipFile('dep-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('dep.py', 'print(\"dependency 1\")\\n')
    wheel.writestr('dep-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: dep\\nVersion: 1.0\\n')
    wheel.writestr('dep-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('dep-1.0.dist-info/RECORD', 'dep.py,,\\ndep-1.0.dist-info/METADATA,,\\ndep-1.0.dist-info/WHEEL,,\\ndep-1.0.dist-info/RECORD,,\\n')
END";

/// A proxy of go as a directory with one module.
const MODULE: &str = "mkdir -p proxy/example.com/dep/@v zip/example.com/dep@v1.0.0 && cd proxy/example.com/dep/@v &&
    echo v1.0.0 > list && echo '{\"Version\":\"v1.0.0\"}' > v1.0.0.info && echo 'module example.com/dep' > v1.0.0.mod &&
    cd - > /dev/null && cp proxy/example.com/dep/@v/v1.0.0.mod zip/example.com/dep@v1.0.0/go.mod &&
    printf 'package dep\\n\\nconst Text = \"dependency 1\"\\n' > zip/example.com/dep@v1.0.0/dep.go &&
    (cd zip && python3 -c 'import shutil; shutil.make_archive(\"../v1.0.0\", \"zip\", \".\")') &&
    python3 - <<'END'
import zipfile
with zipfile.ZipFile('v1.0.0.zip') as made, zipfile.ZipFile('proxy/example.com/dep/@v/v1.0.0.zip', 'w') as out:
    for name in made.namelist():
        if not name.endswith('/'):
            out.writestr(name, made.read(name))
END
    printf 'module example.com/app\\n\\ngo 1.19\\n\\nrequire example.com/dep v1.0.0\\n' > go.mod &&
    printf 'package main\\n\\nimport \"example.com/dep\"\\n\\nfunc main() { println(dep.Text) }\\n' > main.go &&
    go mod tidy 2> /dev/null && rm -rf ../home/go";

const PROJECTS: &[Project] = &[
    Project {
        preset: "npm",
        program: "npm",
        make: "npm install --package-lock-only --no-audit --no-fund > /dev/null",
        works: "node -e 'require(\"dep\")'",
        changed: "npm pkg set version=2.0.0",
        kept: "node_modules",
    },
    Project {
        preset: "pnpm",
        program: "pnpm",
        make: "pnpm install --lockfile-only > /dev/null",
        works: "node -e 'require(\"dep\")'",
        changed: "npm pkg set version=2.0.0",
        kept: "node_modules",
    },
    Project {
        preset: "yarn",
        program: "yarn-1/node_modules/.bin/yarn",
        make: "yarn install --silent > /dev/null 2>&1 && rm -r node_modules",
        works: "node -e 'require(\"dep\")'",
        changed: "npm pkg set version=2.0.0",
        kept: "node_modules",
    },
    Project {
        preset: "yarn",
        program: "yarn-4/node_modules/.bin/yarn",
        make: "echo 'enableTelemetry: false' > .yarnrc.yml && touch yarn.lock && \
               yarn install --mode=update-lockfile > /dev/null",
        works: "yarn node -e 'require(\"dep\")'",
        changed: "npm pkg set version=2.0.0",
        kept: ".yarn .pnp.cjs",
    },
    Project {
        preset: "pip",
        program: "python3",
        make: "echo ./dep-1.0-py3-none-any.whl > requirements.txt",
        works: ".venv/bin/python -c 'import dep'",
        changed: "echo '# more' >> requirements.txt",
        kept: ".venv",
    },
    Project {
        preset: "uv",
        program: "uv",
        make: "printf '[project]\\nname = \"app\"\\nversion = \"1\"\\nrequires-python = \">=3.9\"\\ndependencies = [\"dep\"]\\n\
               [tool.uv.sources]\\ndep = { path = \"dep-1.0-py3-none-any.whl\" }\\n' > pyproject.toml && uv lock -q --offline",
        works: "uv run -q --offline python -c 'import dep'",
        changed: "printf '[tool.other]\\n' >> pyproject.toml",
        kept: ".venv",
    },
    Project {
        preset: "poetry",
        program: "poetry",
        make: "printf '[project]\\nname = \"app\"\\nversion = \"1\"\\nrequires-python = \">=3.9\"\\ndependencies = []\\n\
               [tool.poetry]\\npackage-mode = false\\n[tool.poetry.dependencies]\\ndep = { path = \"dep-1.0-py3-none-any.whl\" }\\n' \
               > pyproject.toml && poetry lock -q",
        works: "poetry run python -c 'import dep'",
        changed: "printf '[tool.other]\\n' >> pyproject.toml && poetry lock -q",
        kept: ".venv",
    },
    Project {
        preset: "cargo",
        program: "cargo",
        make: "mkdir -p dep/src && printf '[package]\\nname = \"dep\"\\nversion = \"1.0.0\"\\nedition = \"2021\"\\n' > dep/Cargo.toml &&
               echo 'pub const TEXT: &str = \"dependency 1\";' > dep/src/lib.rs &&
               (cd dep && git init -q && git add . && git -c user.name=a -c user.email=a@example.com commit -qm dep) &&
               mkdir src && echo 'fn main() { println!(\"{}\", dep::TEXT) }' > src/main.rs &&
               printf '[package]\\nname = \"app\"\\nversion = \"3.0.0\"\\nedition = \"2021\"\\n[dependencies]\\ndep = { git = \"file://%s/dep\" }\\n' \"$PWD\" > Cargo.toml &&
               cargo generate-lockfile -q && rm -rf ../home/.cargo/git ../home/.cargo/registry",
        works: "cargo run -q --offline",
        changed: "sed -i 's/3.0.0/3.0.1/' Cargo.toml Cargo.lock",
        kept: "\"$HOME/.cargo/git\" \"$HOME/.cargo/registry\"",
    },
    Project {
        preset: "go",
        program: "go",
        make: "",
        works: "go run . 2>&1",
        changed: "echo '// more' >> go.mod",
        kept: "\"$HOME/go\"",
    },
    Project {
        preset: "bundler",
        program: "bundle",
        // A repository of gems as a directory.
        make: "mkdir -p dep/lib repository/gems && echo 'puts \"dependency 1\"' > dep/lib/dep.rb &&
               echo 'Gem::Specification.new { |s| s.name = \"dep\"; s.version = \"1.0.0\"; s.summary = \"a\"; s.authors = [\"a\"]; s.files = [\"lib/dep.rb\"] }' > dep/dep.gemspec &&
               (cd dep && gem build --silent -o ../repository/gems/dep-1.0.0.gem dep.gemspec 2> /dev/null) &&
               gem generate_index --silent -d repository > /dev/null &&
               printf 'source \"file://%s/repository\"\\ngem \"dep\"\\n' \"$PWD\" > Gemfile && bundle lock > /dev/null",
        works: "bundle exec ruby -e 'require \"dep\"'",
        changed: "echo '# more' >> Gemfile",
        kept: "vendor .bundle",
    },
    Project {
        preset: "composer",
        program: "composer",
        make: "mkdir dep && echo '<?php echo \"dependency 1\\n\";' > dep/dep.php &&
               echo '{\"name\":\"a/dep\",\"version\":\"1.0.0\"}' > dep/composer.json &&
               echo '{\"repositories\":[{\"type\":\"path\",\"url\":\"dep\",\"options\":{\"symlink\":false}},{\"packagist.org\":false}],
                      \"require\":{\"a/dep\":\"1.0.0\"}}' > composer.json && composer update -q --no-install --no-interaction",
        works: "php -r 'require \"vendor/a/dep/dep.php\";'",
        changed: "sed -i 's/{.repositories/{\"description\":\"more\",\"repositories/' composer.json && composer update -q --lock --no-interaction",
        kept: "vendor",
    },
];

/// Returns a directory whose programs the project needs, if its program exists.
fn directory_of(name: &str) -> Option<PathBuf> {
    let on_path = || {
        let path: OsString = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
    };
    let found = if name.contains('/') { program(name) } else { on_path().or_else(|| program(name)) };
    found?.parent().map(Path::to_owned)
}

/// A project in a place, with its package manager on `PATH`.
struct Tried<'a> {
    place: Place,
    project: &'a Project,
    path: String,
}

impl Tried<'_> {
    fn run(&self, argv: &[&str]) -> Run {
        let run = self.place.run(argv).env("PATH", &self.path).env("CI", "1").env("COMPOSER_ALLOW_SUPERUSER", "1");
        // The compiler itself is on this machine, only what cargo downloads is not.
        let toolchains = std::env::var_os("RUSTUP_HOME")
            .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".rustup").into_os_string()));
        let run = toolchains.into_iter().fold(run, |run, home| run.env("RUSTUP_HOME", home));
        let proxy = format!("file://{}", self.place.text("work/proxy"));
        let go =
            [("GOPROXY", proxy.as_str()), ("GOSUMDB", "off"), ("GOFLAGS", "-modcacherw"), ("GOTOOLCHAIN", "local")];
        go.into_iter().fold(run, |run, (name, value)| run.env(name, value))
    }

    fn sh(&self, script: &str) -> Ran {
        self.run(&["sh", "-ec", script]).run().ends(0)
    }

    fn image(&self, words: &[&str]) -> Ran {
        self.run(&[&[larder_text(), "image", self.project.preset], words].concat()).run()
    }

    /// Everything that a user would do with it.
    fn try_all(&self) {
        let Project { works, kept, changed, .. } = self.project;
        let first = self.image(&[]).ends(0);
        assert!(first.stdout.contains("miss: ") && first.stderr.contains("larder: saved "), "{first:#?}");
        let use_it = || assert_eq!(self.sh(works).stdout.trim(), "dependency 1", "{}", self.project.program);
        use_it();
        self.sh(&format!("rm -rf {kept}"));
        // The install command does not run again.
        let second = self.image(&["--install", "exit 3"]).ends(0);
        assert!(second.stdout.starts_with(&format!("exact: {}-", self.project.preset)), "{second:#?}");
        use_it();
        // For one command.
        self.sh(&format!("rm -rf {kept}"));
        let ran = self.image(&["--install", "exit 3", "--", "sh", "-c", works]).ends(0);
        assert_eq!(ran.stdout.trim(), "dependency 1", "{ran:#?}");
        self.sh(&format!("rm -rf {kept}"));
        self.image(&["--install", "exit 3", "--", "sh", "-c", "exit 7"]).ends(7);
        // Another state of the lock file, and another beginning of the key.
        self.sh(changed);
        assert_eq!(self.image(&["--install", "exit 3", "--replace"]).code, Some(3));
        self.image(&["--install", "exit 3", "--key-suffix", "v2", "--replace"]).ends(3);
        // What it stands for is a command with the same result.
        let printed = self.image(&["--print", "--replace"]).ends(0).stdout;
        assert!(printed.starts_with("larder image restore --key "), "{printed}");
        let printed = printed.replacen("larder", larder_text(), 1);
        let by_hand = self.run(&["sh", "-c", printed.trim()]).run().ends(0);
        assert!(by_hand.stderr.contains("larder: saved "), "{by_hand:#?}");
        use_it();
    }
}

#[test]
fn package_managers() {
    for project in PROJECTS {
        let Some(directory) = directory_of(project.program) else {
            println!("skipped: {} is not installed", project.program);
            continue;
        };
        let place = Place::new();
        let path = [directory.to_str().expect("not UTF-8"), "/usr/local/bin:/usr/bin:/bin"].join(":");
        let tried = Tried { place, project, path };
        let before = match project.preset {
            "npm" | "pnpm" | "yarn" => TARBALL,
            "pip" | "uv" | "poetry" => WHEEL,
            "go" => MODULE,
            _ => "",
        };
        tried.sh(&format!("{before}\n{}", project.make));
        tried.try_all();
    }
}

/// Java takes the home directory from the user database, so a directory of the test covers
/// `~/.m2` there. Maven downloads its plugins.
#[test]
fn maven_builds_offline_afterwards() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can cover ~/.m2");
    larder_testkit::probe_skip!(larder_testkit::has("mvn"), "mvn is not installed");
    let place = Place::new();
    place.put(
        "pom.xml",
        "<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>app</artifactId><version>1</version>
        <properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target></properties>
        <dependencies><dependency><groupId>org.slf4j</groupId><artifactId>slf4j-api</artifactId><version>2.0.9</version>
        </dependency></dependencies></project>",
    );
    place.put("src/main/java/A.java", "public class A { org.slf4j.Logger logger; }");
    fs::create_dir(place.path("m2")).expect("cannot create the directory");
    let covered = "home=$(getent passwd 0 | cut -d: -f6); mkdir -p \"$home/.m2\"
        if [ -e \"$home/.m2/settings.xml\" ]; then cp \"$home/.m2/settings.xml\" ../m2/; fi
        mount --bind ../m2 \"$home/.m2\" && exec \"$@\"";
    let run = |words: &[&str]| place.run(&[&["unshare", "-m", "sh", "-c", covered, "sh"], words].concat()).run();
    let larder = larder_text();
    let first = run(&[larder, "image", "maven"]);
    larder_testkit::probe_skip!(first.code == Some(0), "Maven cannot download its plugins: {}", first.stdout);
    assert!(first.stderr.contains("larder: saved maven-"), "{first:#?}");
    let offline = ["mvn", "-o", "-q", "-B", "-DskipTests", "package"];
    for path in ["m2/repository", "work/target"] {
        fs::remove_dir_all(place.path(path)).expect("cannot remove the directory");
    }
    let second = run(&[larder, "image", "maven", "--install", "exit 3"]).ends(0);
    assert!(second.stdout.starts_with("exact: maven-"), "{second:#?}");
    run(&offline).ends(0);
    assert!(place.path("work/target/app-1.jar").exists());
}

/// Gradle downloads a library once from a server of the test, which is gone afterwards.
#[test]
fn gradle_builds_offline_afterwards() {
    let needed = ["gradle", "javac", "jar", "python3"];
    larder_testkit::probe_skip!(
        needed.into_iter().all(larder_testkit::has),
        "gradle, a JDK or python3 is not installed"
    );
    let place = Place::new();
    let library = "mkdir -p dep/dep ../served/a/dep/1.0 gradle/wrapper && (cd dep && echo 'package dep; public class Dep {
            public static final String TEXT = String.valueOf(\"dependency 1\"); }' > dep/Dep.java && javac dep/Dep.java &&
            jar cf ../../served/a/dep/1.0/dep-1.0.jar dep/Dep.class) && rm -r dep &&
        echo '<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>dep</artifactId><version>1.0</version></project>' \
            > ../served/a/dep/1.0/dep-1.0.pom";
    place.run(&["sh", "-ec", library]).run().ends(0);
    let served = place.text("served");
    let server = Server::start(Path::new("/usr/bin/python3"), |port, _| {
        ["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1", "--directory", &served]
            .map(str::to_owned)
            .to_vec()
    });
    let build = format!(
        "apply plugin: 'application'\nmainClassName = 'A'\nrepositories {{ maven {{ url 'http://127.0.0.1:{}' }} }}\n\
         dependencies {{ compile 'a:dep:1.0' }}\n",
        server.port
    );
    place.put("build.gradle", build);
    place.put(
        "src/main/java/A.java",
        "public class A { public static void main(String[] a) { System.out.println(dep.Dep.TEXT); } }",
    );
    // The wrapper of a project would download Gradle itself.
    place.put("gradle/wrapper/gradle-wrapper.properties", "distributionUrl=none\n");
    place.put("gradlew", "#!/bin/sh\nexec gradle \"$@\"\n");
    place.run(&["chmod", "+x", "gradlew"]).run().quiet();
    let run = |words: &[&str]| place.run(words).env("GRADLE_USER_HOME", place.path("gradle")).run();
    let larder = larder_text();
    let first = run(&[larder, "image", "gradle"]).ends(0);
    assert!(first.stderr.contains("larder: saved gradle-"), "{first:#?}");
    drop(server);
    run(&["rm", "-r", "../gradle/caches", ".gradle", "build"]).quiet();
    let second = run(&[larder, "image", "gradle", "--install", "exit 3"]).ends(0);
    assert!(second.stdout.starts_with("exact: gradle-"), "{second:#?}");
    let built = run(&["./gradlew", "--no-daemon", "--offline", "-q", "run"]).ends(0);
    assert!(built.stdout.ends_with("dependency 1\n"), "{built:#?}");
}

#[test]
fn packages_of_a_workspace() {
    for (preset, name) in [("npm", "npm"), ("pnpm", "pnpm"), ("yarn", "yarn-1/node_modules/.bin/yarn")] {
        let Some(directory) = directory_of(name) else {
            println!("skipped: {name} is not installed");
            continue;
        };
        let project = Project { preset, program: name, make: "", works: "", changed: "", kept: "" };
        let path = [directory.to_str().expect("not UTF-8"), "/usr/local/bin:/usr/bin:/bin"].join(":");
        let tried = Tried { place: Place::new(), project: &project, path };
        tried.sh(TARBALL);
        // The second package uses another version, which cannot be shared.
        tried.sh(
            "mkdir -p packages/a packages/b packages/none && tar -xzf dep.tgz &&
            sed -i 's/1\\.0\\.0/2.0.0/' package/package.json && sed -i 's/dependency 1/dependency 2/' package/index.js &&
            tar -czf dep2.tgz package && rm -r package &&
            echo '{\"name\":\"app\",\"private\":true,\"workspaces\":[\"packages/*\",\"!packages/none\"]}' > package.json &&
            printf 'packages:\\n  - packages/*\\n  - \"!packages/none\"\\n' > pnpm-workspace.yaml &&
            for p in a b none; do echo '{\"name\":\"'$p'\",\"version\":\"1.0.0\",\"dependencies\":{\"dep\":\"file:../../dep.tgz\"}}' > packages/$p/package.json; done &&
            sed -i 's/dep.tgz/dep2.tgz/' packages/b/package.json",
        );
        let lock = match preset {
            "npm" => "npm install --package-lock-only --no-audit --no-fund",
            "pnpm" => "pnpm install --lockfile-only",
            _ => "yarn install --silent && rm -rf node_modules packages/*/node_modules",
        };
        tried.sh(&format!("{lock} > /dev/null"));
        tried.image(&[]).ends(0);
        tried.sh("rm -rf node_modules packages/*/node_modules");
        tried.image(&["--install", "exit 3"]).ends(0);
        for (package, text) in [("a", "dependency 1"), ("b", "dependency 2")] {
            assert_eq!(tried.sh(&format!("cd packages/{package} && node -e 'require(\"dep\")'")).stdout.trim(), text);
        }
        assert!(!tried.place.path("work/packages/none/node_modules").exists(), "{preset}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let place = Place::new();
    let larder = larder_text();
    let said = |words: &[&str]| place.run(&[&[larder, "image"], words].concat()).run().ends(1).stderr;
    assert!(said(&["npm"]).contains("there is no npm-shrinkwrap.json or package-lock.json in /"));
    place.put("requirements.txt", "");
    fs::create_dir(place.path("work/empty")).expect("cannot create the directory");
    let error = place.run(&[larder, "image", "pip"]).env("PATH", place.path("work/empty")).run().ends(1).stderr;
    assert!(error.contains("pip: `python3 ") && error.contains("cannot be started"), "{error}");
    // An install that fails is not saved, and its exit code is kept.
    let has_python = Command::new("/usr/bin/python3").arg("--version").output().is_ok();
    if has_python {
        let failed = place.run(&[larder, "image", "pip", "--install", "exit 9"]).run().ends(9);
        assert!(failed.stderr.contains("nothing is saved"), "{failed:#?}");
    } else {
        println!("skipped: python3 is not installed");
    }
    // Nor can its links.
    std::os::unix::fs::symlink("../home", place.path("work/vendor")).expect("cannot create the link");
    place.put("Gemfile.lock", "");
    place.tool("bin/ruby", "echo ruby 3");
    let bundler = place.run(&[larder, "image", "bundler"]).env("PATH", place.path("bin"));
    let refused = bundler.run().ends(1).stderr;
    assert!(refused.contains("vendor/bundle: not restored, because a link there leads out of"), "{refused}");
    // The packages that a checkout names cannot lead out of it.
    place.put("package.json", r#"{"workspaces": ["../*", "out", "in", "/*"]}"#);
    place.put("package-lock.json", "{}");
    place.put("in/package.json", "{}");
    fs::write(place.path("home/package.json"), "{}").expect("cannot write");
    std::os::unix::fs::symlink("../home", place.path("work/out")).expect("cannot create the link");
    if larder_testkit::has("node") {
        let printed = place.run(&[larder, "image", "npm", "--print"]).run().ends(0).stdout;
        assert!(printed.trim_end().ends_with(" --replace node_modules in/node_modules"), "{printed}");
    } else {
        println!("skipped: node is not installed");
    }
    // Two words that were swapped.
    let swapped = place.run(&[larder, "image", "npn"]).run().ends(2).stderr;
    assert!(swapped.contains("npm"), "{swapped}");
}

/// A checkout chooses the names and patterns of its packages. A name is no option of a command, and a
/// pattern leads to no other files.
#[test]
fn names_of_packages_are_only_names() {
    let place = Place::new();
    let larder = larder_text();
    place.tool("bin/node", "echo v22");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.text("bin"));
    let image = |words: &[&str]| {
        place.run(&[&["timeout", "60", larder, "image", "npm"], words].concat()).env("PATH", &path).run()
    };
    const NAME: &str = "--if-missing=touch forged #";
    place.put("package.json", r#"{"workspaces": ["*", "../home/package.json/**", "!/proc/**"]}"#);
    place.put("package-lock.json", "{}");
    place.put(&format!("{NAME}/package.json"), "{}");
    // Listing what is below a file is an error.
    fs::write(place.path("home/package.json"), "{}").expect("cannot write");
    let printed = image(&["--print"]).ends(0).stdout;
    assert!(printed.trim_end().ends_with(&format!(" node_modules './{NAME}/node_modules'")), "{printed}");
    image(&["--install", "mkdir -p node_modules"]).ends(0);
    let made = place.path("work").join(NAME).join("node_modules");
    assert!(made.is_dir());
    fs::remove_dir(&made).expect("cannot remove the directory");
    let by_hand = printed.replacen("larder", larder, 1);
    assert!(place.run(&["sh", "-c", by_hand.trim()]).run().ends(0).stdout.starts_with("exact: "));
    assert!(made.is_dir());
    fs::remove_dir(&made).expect("cannot remove the directory");
    assert_eq!(image(&["--install", "exit 3", "--", "echo", "ran"]).ends(0).stdout, "ran\n");
    assert!(made.is_dir(), "the image has no such path for the command");
    assert!(!place.path("work/forged").exists());
    let control = "a\u{1b}[31m";
    place.put(&format!("{control}/package.json"), "{}");
    let refused = image(&["--print"]).ends(1).stderr;
    assert!(refused.contains("control characters") && !refused.contains('\u{1b}'), "{refused:?}");
    // A checkout in an archive can have a FIFO, to which no process writes.
    place.remove(&["package.json"]);
    place.run(&["mkfifo", "package.json"]).run().ends(0);
    assert!(image(&["--print"]).ends(1).stderr.contains("package.json: cannot be read"));
}
