//! The real projects that the demo and `bench build` build: their sources, and how they are built.
//!
//! The sources come from crates that contain C or C++ code. cargo downloads them at exact versions
//! and checks them.

/// A project: one folder of one crate, and a recipe.
pub(crate) struct Project {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    /// The crate that contains the sources, and its exact version.
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// The project's root in that crate.
    pub(crate) folder: &'static str,
    /// Files from other folders of the crate, and their paths below that root.
    pub(crate) extra: &'static [(&'static str, &'static str)],
    pub(crate) recipe: Recipe,
    /// The approximate number of its objects, for the first progress bar.
    pub(crate) objects: u64,
    /// True if the small form has it.
    pub(crate) is_quick: bool,
}

/// How a project is configured and built. Options and targets are words with spaces between them.
pub(crate) enum Recipe {
    /// CMake in a separate build directory. The cache is the compiler launcher.
    Cmake { generator: &'static str, options: &'static str, targets: &'static str },
    /// `./configure` in a separate build directory. The cache is in `CC="larder gcc"`.
    Autotools { options: &'static str, targets: &'static str },
    /// A makefile in the source tree. The cache is in `CC="larder gcc"`.
    Make { targets: &'static str },
}

/// All projects. The quick ones come first.
pub(crate) const PROJECTS: &[Project] = &[
    Project {
        name: "bzip2",
        language: "C",
        package: "bzip2-sys",
        version: "0.1.13",
        folder: "bzip2-1.0.8",
        extra: &[],
        recipe: Recipe::Make { targets: "libbz2.a bzip2 bzip2recover" },
        objects: 9,
        is_quick: true,
    },
    Project {
        name: "libgit2",
        language: "C",
        package: "libgit2-sys",
        version: "0.18.8",
        folder: "libgit2",
        extra: &[],
        recipe: Recipe::Cmake {
            generator: "Ninja",
            options: "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTS=OFF -DBUILD_CLI=OFF \
                -DUSE_HTTPS=OFF -DUSE_SSH=OFF -DUSE_BUNDLED_ZLIB=ON -DUSE_HTTP_PARSER=builtin \
                -DREGEX_BACKEND=builtin -DUSE_SHA1=CollisionDetection -DUSE_SHA256=Builtin",
            targets: "all",
        },
        objects: 217,
        is_quick: true,
    },
    Project {
        name: "zeromq",
        language: "C++",
        package: "zeromq-src",
        version: "0.3.6",
        folder: "vendor",
        extra: &[],
        recipe: Recipe::Cmake {
            generator: "Unix Makefiles",
            options: "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED=OFF -DBUILD_TESTS=OFF -DWITH_DOC=OFF \
                -DWITH_LIBSODIUM=OFF -DENABLE_CURVE=OFF -DWITH_PERF_TOOL=OFF",
            targets: "all",
        },
        objects: 105,
        is_quick: true,
    },
    Project {
        name: "jemalloc",
        language: "C",
        package: "tikv-jemalloc-sys",
        version: "0.6.1",
        folder: "jemalloc",
        extra: &[("configure/configure", "configure")],
        recipe: Recipe::Autotools { options: "--disable-cxx", targets: "build_lib_static build_lib_shared" },
        objects: 186,
        is_quick: false,
    },
    Project {
        name: "protobuf",
        language: "C++",
        package: "protobuf-src",
        version: "2.1.1",
        folder: "protobuf",
        extra: &[],
        recipe: Recipe::Cmake {
            generator: "Ninja",
            options: "-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=14 -DABSL_PROPAGATE_CXX_STANDARD=ON \
                -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF -Dprotobuf_WITH_ZLIB=OFF",
            targets: "all",
        },
        objects: 332,
        is_quick: false,
    },
];

/// Returns the projects of a run: those in `only`, or else the small or the full selection.
pub(crate) fn choose(small: bool, only: &[String]) -> anyhow::Result<Vec<&'static Project>> {
    let all = || PROJECTS.iter().map(|project| project.name).collect::<Vec<_>>().join(", ");
    for name in only {
        anyhow::ensure!(PROJECTS.iter().any(|project| project.name == name), "no project {name}; there are: {}", all());
    }
    let wanted = |project: &&Project| match only {
        [] => project.is_quick || !small,
        only => only.iter().any(|name| name == project.name),
    };
    Ok(PROJECTS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(small: bool, only: &[&str], expected: &[&str]) {
        let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
        let names: Vec<_> = choose(small, &only).expect("known names").iter().map(|project| project.name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn chooses_by_size_and_by_name() {
        check(true, &[], &["bzip2", "libgit2", "zeromq"]);
        check(false, &[], &["bzip2", "libgit2", "zeromq", "jemalloc", "protobuf"]);
        check(true, &["protobuf"], &["protobuf"]);
        assert!(choose(true, &["nonesuch".to_owned()]).is_err());
    }
}
