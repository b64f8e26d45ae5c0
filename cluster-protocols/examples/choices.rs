//! The protocols of clusters by their names, with how many servers each has and how many of these compute.

use cluster_protocols::ProtocolChoice;

fn main() -> Result<(), String> {
    for name in ["rss", "rss-dealt", "additive", "dealt-2", "dealt-16"] {
        let choice: ProtocolChoice = name.parse()?;
        println!("{choice}: {} servers, {} compute", choice.servers(), choice.parties());
    }
    Ok(())
}
