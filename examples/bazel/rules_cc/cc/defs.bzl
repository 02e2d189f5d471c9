"""The rules that Bazel's own files ask rules_cc for, as Bazel has them built in.

Debian's bazel-rules-cc is for a newer Bazel than Debian's: it loads names that Bazel 4.2 does not have.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
objc_library = native.objc_library
