//! Generates the messages and services of the Container Storage Interface from `proto/csi.proto`.

/// The services that the plugin has, and one that its tests have. The others would only take time to compile.
const SERVICES: [&str; 3] = ["Identity", "Node", "Controller"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let mut definitions = protox::compile(["csi.proto"], ["proto"])?;
    for file in &mut definitions.file {
        file.service.retain(|service| SERVICES.contains(&service.name()));
        // The comments are not written for rustdoc, which takes parts of them for links and examples.
        file.source_code_info = None;
    }
    tonic_prost_build::configure().compile_fds(definitions)?;
    Ok(())
}
