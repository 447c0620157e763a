//! Compiles the wire with protox: no protoc has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["iceferry/v1/dispatch.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        // They hold credentials, or what may be secret: lib.rs has a Debug for them that shows none.
        .skip_debug(["iceferry.v1.SourceContext", "iceferry.v1.TableFilter", "iceferry.v1.TargetContext"])
        .compile_fds(files)?;
    Ok(())
}
