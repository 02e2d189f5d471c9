//! Python in whole commands: modules that draw random numbers or read the clock when they are
//! imported, and the directories in which modules are searched for.

use larder_testkit::{has, probe_skip};

use crate::project::Project;

const PYTHON: &str = "/usr/bin/python3";

/// Lays out place `at` and runs the script there through larder. Returns the outcome.
#[track_caller]
fn ran(project: &Project, at: usize, argv: &[&str]) -> String {
    project.lay_out(at);
    let (ran, mut outcomes) = project.through_larder(at, argv);
    ran.ends(0);
    outcomes.pop().expect("the log is empty")
}

/// Two runs show that the seeds and the time of the import are not in the result.
#[test]
fn imports_are_no_use() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    for text in [
        "import logging\nlogging.info('quiet')\n",
        "import concurrent.futures\n",
        "import random, tempfile\n",
        "import urllib.request\n",
        "import multiprocessing\n",
        "import secrets, uuid\n",
        "import random\nrandom.seed(7)\nprint(random.choice('abcdefgh'))\n",
        "import random\nnumbers = random.Random(7)\nprint(numbers.sample(range(100), 3), numbers.random())\n",
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: open(d + '/x', 'w').write('x')\n",
    ] {
        let project =
            Project::of(&[("gen.py", &format!("{text}open('o', 'w').write(open('in').read())\n")), ("in", "1\n")]);
        let argv = [PYTHON, "gen.py"];
        let outcomes = [0, 0, 0, 1, 2].map(|at| project.compared(at, &argv));
        assert_eq!(outcomes, ["miss", "miss", "hit", "miss", "hit"], "{text}");
        project.change("in", "2\n");
        assert_eq!(project.compared(0, &argv), "miss", "{text}");
    }
}

/// A shell script and make run such generators.
#[test]
fn generators_of_a_build() {
    probe_skip!(has(PYTHON) && has("make"), "python3 or make is not installed");
    let project = Project::of(&[
        ("Makefile", "o: in gen.py\n\tpython3 gen.py < in > o\n\tpython3 -c 'import random; print(1)' >> o\n"),
        ("gen.py", "import sys, logging, tempfile\nprint(sys.stdin.read())\n"),
        ("in", "1\n"),
    ]);
    let outcomes = [0, 1, 2].map(|at| project.compared(at, &["make", "-s"]));
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
}

/// In each of these, a random number is in the result. Some of them are from a range so small that
/// two runs often agree.
#[test]
fn random_results_are_never_answered() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    for text in [
        "import random\nprint(random.random())",
        "import random\nprint(random.random() < 2)",
        "from random import choice\nprint(choice('a'))",
        "import random as r\nprint(r.randint(0, 0))",
        "import random\nif not __debug__:\n    random.seed(1)\nprint(random.choice('a'))",
        "import random; random.seed(1); random.seed(); print(random.choice('a'))",
        "import random\nx = random.choice('a')\nrandom.seed(1)\nprint(x)",
        "import random\nrandom.seed(1)\nnumbers = random.Random(7)\nnumbers.seed()\nprint(numbers.choice('a'))",
        "import secrets\nprint(secrets.randbelow(1))",
        "import os\nprint(os.urandom(1)[0] < 256)",
        "import uuid\nprint(uuid.uuid4())",
        "import tempfile\nprint(tempfile.mktemp())",
        "import multiprocessing.process as p\nprint(bytes(p.current_process().authkey))",
        "import email.utils\nprint(email.utils.make_msgid(domain='x'))",
        "import module\nprint(module.number)",
        "import os\nos.unlink('gen.py')\nimport random\nprint(random.choice('a'))",
    ] {
        let module = "import random\nnumber = random.choice('a')\n";
        let project = Project::of(&[("gen.py", text), ("module.py", module)]);
        let outcomes = [0; 4].map(|at| ran(&project, at, &[PYTHON, "gen.py"]));
        assert!(outcomes.iter().all(|outcome| outcome != "hit"), "{text}: {outcomes:?}");
    }
}

/// A run that reads the clock after its imports is refused, even if what it makes of the time is
/// the same for a day.
#[test]
fn the_clock_is_never_answered() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    for text in [
        "import time\nprint(time.time() > 0)",
        "import logging, time\nprint(time.time() > 0)",
        "import logging, datetime\nprint(datetime.date.today())",
        "import time, logging\nprint(time.strftime('%Y'))",
        "import time\ny = time.gmtime().tm_year\nimport logging\nprint(y)",
        "import logging, importlib, time\nprint(time.time_ns() > 0)\nimportlib.reload(logging)",
        "import logging\nprint(logging._startTime)",
        "import logging, sys\nlogging.basicConfig(format='%(asctime)s', datefmt='%Y', stream=sys.stdout)\nlogging.error('')",
        "import logging, os, time\nif os.fork() == 0: print(time.time() > 0)\nelse: os.wait()",
        "import logging, zipfile\nzipfile.ZipFile('o.zip', 'w').writestr('a', 'b')",
        "import logging, gzip\ngzip.open('o.gz', 'w').write(b'a')",
        "import logging, email.utils\nprint(email.utils.formatdate())",
        "import shutil\nprint(shutil.disk_usage('.').free > 0)",
        "import os\nprint(os.statvfs('.').f_bavail > 0, os.sysconf('SC_AVPHYS_PAGES') > 0)",
    ] {
        let project = Project::of(&[("gen.py", text)]);
        let outcomes = [0; 4].map(|at| ran(&project, at, &[PYTHON, "gen.py"]));
        assert!(outcomes.iter().all(|outcome| outcome != "hit"), "{text}: {outcomes:?}");
    }
}

/// Scripts that name mtimes, and so depend on all times of what they look at.
#[test]
fn the_directory_of_a_script_is_only_searched() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    for text in ["import zipfile\n", "import tarfile, shutil\n", "import filecmp\nimport module\nimport json\n"] {
        let project = Project::of(&[("gen.py", text), ("module.py", "")]);
        let top = project.lay_out(0);
        let argv = ["env", "PYTHONDONTWRITEBYTECODE=1", PYTHON, "gen.py"];
        let outcomes = ["2019", "2020", "2021"].map(|year| {
            project.place.run(&["touch", "-d", &format!("{year}-01-02"), &top]).run().ends(0);
            let (ran, mut outcomes) = project.through_larder(0, &argv);
            ran.ends(0);
            outcomes.pop().expect("the log is empty")
        });
        assert_eq!(outcomes, ["miss", "hit", "hit"], "{text}");
    }
}

/// The mtime of the script's directory is in the result.
#[test]
fn the_mtime_of_a_directory_counts_if_it_is_used() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    for text in [
        "import os\nm = os.stat('.').st_mtime\nimport json\nprint(m)",
        "import os, json\nm = os.stat('.').st_mtime\nimport xml\nprint(m)",
        "import os, json\nos.stat('.')\nm = os.stat('.').st_mtime\nimport xml\nprint(m)",
        "import os\nos.listdir('.')\nm = os.stat('.').st_mtime\nos.listdir('.')\nos.stat(os.__file__)\nprint(m)",
        "import zipfile\nz = zipfile.ZipFile('/tmp/larder-test.zip', 'w')\nz.write('.', 'd')\nprint(z.infolist()[0].date_time)\n\
         import os\nos.unlink('/tmp/larder-test.zip')",
        "import tarfile, io\nt = tarfile.open(fileobj=io.BytesIO(), mode='w')\nt.add('.', 'd')\nprint(t.getmembers()[0].mtime)",
    ] {
        let project = Project::of(&[("gen.py", text), ("module.py", "")]);
        for year in [2019, 2019, 2020, 2021] {
            project.compared_after(0, &[PYTHON, "gen.py"], &format!("touch -d {year}-01-02 ."));
        }
    }
}

/// Meson's state holds paths of the place, each after its length. A command that reads it serves
/// another place, unless what it read differs apart from these.
#[test]
fn a_pickle_with_paths_is_compared_without_lengths() {
    probe_skip!(has(PYTHON), "python3 is not installed");
    let project = Project::of(&[(
        "read.py",
        "import pickle\nwith open('meson-private/s.dat', 'rb') as f:\n    print(pickle.load(f)['n'])\n",
    )]);
    let write = |n: u32| {
        format!(
            "mkdir -p meson-private; {PYTHON} -c \"import os, pickle; pickle.dump({{'p': os.getcwd() + '/x', 'n': {n}}}, \
             open('meson-private/s.dat', 'wb'))\"; touch -d @1500000000 meson-private/s.dat meson-private"
        )
    };
    let read = [PYTHON, "-B", "read.py"];
    let outcomes = [0, 1, 2].map(|at| project.compared_after(at, &read, &write(7)));
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
    assert_ne!(project.compared_after(3, &read, &write(8)), "hit");
    assert_eq!(project.compared_after(3, &read, &write(7)), "hit");
}
