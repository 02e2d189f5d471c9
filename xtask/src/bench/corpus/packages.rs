//! The packages of `cargo xtask bench corpus`, and the commands that build them.

/// A source package, and the shell commands that build it in its source directory. `gcc`, `g++`,
/// `cc` and `c++` on `PATH` are the compilers; `$CC` is `gcc` and `$CXX` is `g++`.
pub(super) struct Package {
    /// The name of Debian's source package.
    pub(super) name: &'static str,
    pub(super) system: &'static str,
    /// Run once in the fetched sources, as for a release: `autoreconf`. Empty if there is nothing to do.
    pub(super) prepare: &'static str,
    /// Empty if the package has no such step.
    pub(super) configure: &'static str,
    pub(super) make: &'static str,
    /// The C or C++ source that the benchmark touches and edits.
    pub(super) edited: &'static str,
    /// True for the packages of the short form.
    pub(super) is_small: bool,
}

#[rustfmt::skip]
pub(super) const PACKAGES: &[Package] = &[
    Package { name: "lua5.4", system: "plain make", is_small: true, prepare: "", edited: "src/lapi.c",
        configure: "", make: "make -j2 -C src linux" },
    Package { name: "lz4", system: "plain make, recursive", is_small: true, prepare: "", edited: "lib/lz4hc.c",
        configure: "", make: "make -j2 -C lib && make -j2 -C programs lz4" },
    Package { name: "bc", system: "automake, generators", is_small: true, prepare: "", edited: "bc/util.c",
        configure: "./configure", make: "make -j2 MAKEINFO=true" },
    Package { name: "fribidi", system: "Meson", is_small: true, prepare: "", edited: "lib/fribidi.c",
        configure: "meson setup build -Ddocs=false", make: "ninja -j2 -C build" },
    Package { name: "fmtlib", system: "CMake and Ninja, C++", is_small: true, prepare: "", edited: "src/os.cc",
        configure: "cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFMT_TEST=OFF -DFMT_DOC=OFF .",
        make: "ninja -j2 -C build" },
    Package { name: "cjson", system: "CMake and make", is_small: true, prepare: "", edited: "cJSON.c",
        configure: "cmake -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DENABLE_CJSON_TEST=OFF .",
        make: "make -j2 -C build" },
    Package { name: "libpng1.6", system: "autotools", is_small: false, prepare: "", edited: "pngread.c",
        configure: "./configure", make: "make -j2" },
    Package { name: "expat", system: "autotools, subdirectory", is_small: false, prepare: "cd expat && ./buildconf.sh", edited: "expat/lib/xmlrole.c",
        configure: "cd expat && ./configure --without-docbook", make: "make -j2 -C expat" },
    Package { name: "libffi", system: "autotools, assembler", is_small: false, prepare: "", edited: "src/prep_cif.c",
        configure: "./configure --disable-docs", make: "make -j2" },
    Package { name: "dash", system: "automake, generators", is_small: false, prepare: "", edited: "src/eval.c",
        configure: "./configure", make: "make -j2" },
    Package { name: "nano", system: "automake, gnulib", is_small: false, prepare: "", edited: "src/utils.c",
        configure: "./configure --disable-nls", make: "make -j2" },
    Package { name: "libevent", system: "autotools, libtool", is_small: false, prepare: "./autogen.sh", edited: "evmap.c",
        configure: "./configure --disable-openssl CFLAGS=-O1", make: "make -j2" },
    Package { name: "nginx", system: "its own configure", is_small: false, prepare: "", edited: "src/core/ngx_list.c",
        configure: "./configure --without-http_rewrite_module --without-http_gzip_module", make: "make -j2" },
    Package { name: "zlib", system: "its own configure", is_small: false, prepare: "", edited: "trees.c",
        configure: "./configure", make: "make -j2" },
    Package { name: "bzip2", system: "plain make", is_small: false, prepare: "", edited: "compress.c",
        configure: "", make: "make -j2 libbz2.a bzip2 bzip2recover" },
    Package { name: "redis", system: "plain make, stamps", is_small: false, prepare: "", edited: "src/adlist.c",
        configure: "", make: "make -j2 MALLOC=libc OPTIMIZATION=-O0" },
    Package { name: "leveldb", system: "CMake and make, C++", is_small: false, prepare: "", edited: "util/hash.cc",
        configure: "cmake -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLEVELDB_BUILD_TESTS=OFF -DLEVELDB_BUILD_BENCHMARKS=OFF .",
        make: "make -j2 -C build" },
    Package { name: "libjpeg-turbo", system: "CMake and make, nasm", is_small: false, prepare: "", edited: "jcmarker.c",
        configure: "cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 .", make: "make -j2 -C build" },
    Package { name: "snappy", system: "CMake and Ninja, C++", is_small: false, prepare: "", edited: "snappy-sinksource.cc",
        configure: "cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF .",
        make: "ninja -j2 -C build" },
    Package { name: "libepoxy", system: "Meson, generators", is_small: false, prepare: "", edited: "src/dispatch_common.c",
        configure: "meson setup build -Dtests=false -Dglx=no -Degl=no -Dx11=false", make: "ninja -j2 -C build" },
    Package { name: "json-c", system: "CMake and make", is_small: false, prepare: "", edited: "json_util.c",
        configure: "cmake -B build -DBUILD_TESTING=OFF .", make: "make -j2 -C build" },
    Package { name: "graphene", system: "Meson", is_small: false, prepare: "", edited: "src/graphene-plane.c",
        configure: "meson setup build -Dtests=false -Dinstalled_tests=false -Dintrospection=disabled -Dgobject_types=false",
        make: "ninja -j2 -C build" },
    Package { name: "mawk", system: "its own configure", is_small: false, prepare: "", edited: "memory.c",
        configure: "./configure", make: "make -j2" },
    Package { name: "markupsafe", system: "setuptools", is_small: false, prepare: "", edited: "src/markupsafe/_speedups.c",
        configure: "", make: "/usr/bin/python3 setup.py -q build_ext --inplace" },
    Package { name: "busybox", system: "kbuild", is_small: false, prepare: "", edited: "libbb/ask_confirmation.c",
        configure: "make allnoconfig && sed -i 's/# CONFIG_\\(CAT\\|ECHO\\|ASH\\|LS\\|SED\\) is not set/CONFIG_\\1=y/' .config && yes '' | make oldconfig",
        make: "make -j2" },
];

/// What they need besides the compilers and build systems of every build.
pub(super) const NEEDED: &str = "\
    meson autoconf aclocal=automake libtoolize=libtool autopoint bison flex ed nasm \
    /usr/include/ncurses.h=libncurses-dev \
    /usr/lib/python3/dist-packages/setuptools/__init__.py=python3-setuptools \
    /usr/bin/python3-config=python3-dev";
