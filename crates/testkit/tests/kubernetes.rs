//! The manifests in `packaging/kubernetes` fit together, and name no registry.

use std::fs;
use std::path::{Path, PathBuf};

use larder_testkit::{Place, workspace};
use serde_json::Value;

fn directory() -> PathBuf {
    workspace().join("packaging/kubernetes")
}

/// Returns a manifest as JSON, or `None` if Python's yaml, which parses it, is not installed.
fn manifest(path: &Path) -> Option<Value> {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let read = Place::new().run(&["python3", "-c", script, path.to_str().expect("not UTF-8")]).run();
    if read.stderr.contains("No module named 'yaml'") {
        eprintln!("skipped: Python's yaml is not installed");
        return None;
    }
    Some(serde_json::from_str(&read.ends(0).stdout).expect("not JSON"))
}

/// Calls `act` with each string in a value, and the name of its field.
fn strings(value: &Value, field: &str, act: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => act(field, text),
        Value::Array(list) => list.iter().for_each(|value| strings(value, field, act)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| strings(value, name, act)),
        _ => {}
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).expect("cannot list the directory").map(|entry| entry.expect("is there").path());
    all.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")).collect()
}

#[test]
fn the_kustomization_lists_every_manifest() {
    let Some(kustomization) = manifest(&directory().join("kustomization.yaml")) else { return };
    let listed = kustomization["resources"].as_array().expect("not a list");
    let mut listed: Vec<&str> = listed.iter().filter_map(Value::as_str).collect();
    listed.push("kustomization.yaml");
    let mut found: Vec<String> = Vec::new();
    files(&directory())
        .iter()
        .filter_map(|path| path.file_name())
        .for_each(|name| found.push(name.display().to_string()));
    listed.sort_unstable();
    found.sort_unstable();
    assert_eq!(listed, found);
}

#[test]
fn the_driver_has_one_name_and_images_are_placeholders() {
    let service =
        fs::read_to_string(workspace().join("crates/image/csi/src/service.rs")).expect("cannot read the file");
    let name = service.lines().find_map(|line| line.strip_prefix("const NAME: &str = \"")?.strip_suffix("\";"));
    let name = name.expect("service.rs does not define NAME");
    for path in files(&directory()).into_iter().chain(files(&directory().join("examples"))) {
        let Some(manifest) = manifest(&path) else { return };
        if manifest["kind"] == "CSIDriver" {
            assert_eq!(manifest["metadata"]["name"], name);
            // Otherwise a pod could state any namespace in its attributes.
            assert_eq!(manifest["spec"]["podInfoOnMount"], true);
        }
        strings(&manifest, "", &mut |field, text| match field {
            "driver" => assert_eq!(text, name, "{}", path.display()),
            // The first part of a name with a registry has a dot or a port.
            "image" => assert!(!text.contains('/'), "{}: {text} names a registry", path.display()),
            _ => {}
        });
    }
}

/// Each option in the DaemonSet and in docs/kubernetes.md is one of the plugin.
#[test]
fn the_options_of_the_plugin_exist() {
    let options =
        fs::read_to_string(workspace().join("crates/image/csi/src/options.rs")).expect("cannot read the file");
    let page = fs::read_to_string(workspace().join("docs/kubernetes.md")).expect("cannot read the file");
    let fields = options.lines().filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name.to_owned()));
    let known: Vec<String> =
        fields.filter(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())).collect();
    let is_known = |option: &str| known.contains(&option.replace('-', "_"));
    let (_, table) = page.split_once("## Options of the plugin").expect("the page has no such section");
    let rows = table.lines().filter(|line| line.starts_with("| `--"));
    let named: Vec<&str> =
        rows.flat_map(|row| row.split('|').nth(1).expect("has a cell").split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 6, "only {named:?} were found");
    let mut used: Vec<String> = named.iter().map(|option| (*option).to_owned()).collect();
    if let Some(set) = manifest(&directory().join("daemonset.yaml")) {
        let containers = set["spec"]["template"]["spec"]["containers"].as_array().expect("not a list").clone();
        let plugin = containers.iter().find(|container| container["name"] == "csi").expect("there is no plugin");
        strings(&plugin["args"], "", &mut |_, text| used.push(text.to_owned()));
    }
    for option in used {
        let name = option.trim_start_matches("--").split([' ', '=']).next().expect("has a name");
        assert!(is_known(name), "larder-csi has no option --{name}");
    }
}
