"""Builds a package that has ./configure and make, as rules_foreign_cc's rule of this name does.

The directories, variables and their names are those of rules_foreign_cc, because they are what a compiler sees. What that
rule has for other build systems, and for tools that it builds itself, is left out.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "C_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

ForeignInfo = provider(
    "What a package installed.",
    fields = {"directory": "The directory that holds include and lib."},
)

def _compile_flags(ctx, toolchain):
    """The toolchain's own flags for C, as Bazel's cc_library would pass them."""
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.conlyopts,
    )
    return cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = C_COMPILE_ACTION_NAME,
        variables = variables,
    )

def _configure(sources):
    """The topmost file of that name."""
    found = [(file.path.count("/"), file.path, file) for file in sources if file.basename == "configure"]
    if not found:
        fail("no ./configure among the sources")
    return sorted(found)[0][2]

def _quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"

def _configure_make_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    installed = ctx.actions.declare_directory(ctx.label.name)
    dependencies = [dep[ForeignInfo].directory for dep in ctx.attr.deps]
    configure = _configure(ctx.files.srcs)

    environment = {
        "AR": toolchain.ar_executable,
        "CC": toolchain.compiler_executable,
        "CONFIGURE": configure.path,
        "CONFIGURE_OPTIONS": " ".join([_quoted(option) for option in ctx.attr.configure_options]),
        "CONFIGURE_PREFIX": ctx.attr.configure_prefix or ctx.var.get("configure_prefix", ""),
        "DEPENDENCIES": " ".join([directory.path for directory in dependencies]),
        "INSTALLED": installed.path,
        "IN_PLACE": "1" if ctx.attr.configure_in_place else "",
        "JOBS": ctx.var.get("jobs", "1"),
        "NAME": ctx.label.name,
        "TOOL_PREFIX": ctx.attr.tool_prefix or ctx.var.get("tool_prefix", ""),
    }
    if ctx.var.get("cflags", "bazel") == "bazel":
        environment["CFLAGS"] = " ".join(_compile_flags(ctx, toolchain))

    outputs = [installed]
    if ctx.var.get("measure"):
        # Not part of the package: what the build cost, and the objects that it left.
        times = ctx.actions.declare_file(ctx.label.name + ".times")
        objects = ctx.actions.declare_file(ctx.label.name + ".objects.tar")
        environment["TIMES"] = times.path
        environment["OBJECTS"] = objects.path
        outputs += [times, objects]

    ctx.actions.run_shell(
        mnemonic = "ConfigureMake",
        progress_message = "Configuring and making " + ctx.label.name,
        inputs = depset(ctx.files.srcs + dependencies, transitive = [toolchain.all_files]),
        outputs = outputs,
        tools = [ctx.file._build],
        # As text, not as `env`: that is dropped where the default shell environment, with its PATH, is used.
        command = "".join([name + "=" + _quoted(value) + "\n" for name, value in environment.items()]) +
                  ". " + ctx.file._build.path,
        execution_requirements = {"block-network": ""},
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(files = depset(outputs)),
        ForeignInfo(directory = installed),
    ]

configure_make = rule(
    implementation = _configure_make_impl,
    attrs = {
        "configure_in_place": attr.bool(doc = "The sources are copied, and configured where the copies are."),
        "configure_options": attr.string_list(doc = "What ./configure gets beside --prefix."),
        "configure_prefix": attr.string(doc = "Words in front of ./configure."),
        "deps": attr.label_list(providers = [ForeignInfo], doc = "Packages that this one includes and links."),
        "srcs": attr.label_list(allow_files = True, mandatory = True, doc = "The sources, ./configure among them."),
        "tool_prefix": attr.string(doc = "Words in front of make."),
        "_build": attr.label(allow_single_file = True, default = "//foreign:build.sh"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
