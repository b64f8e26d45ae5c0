//! `trefoil cluster`: making the files of a cluster, and renewing and revoking its certificates.

use serde_json::json;

use crate::{
    base::{Error, Result},
    cli::{arguments::Cluster, output::Output},
    cluster::{
        Member, Plan, Renewal, add_client, add_dealer, addresses, init, renew, request, revoke,
        sign,
    },
    config::check_security,
};

pub(super) fn run(command: Cluster, output: Output) -> Result<()> {
    match command {
        Cluster::Init { dir, protocol, security, hosts, port, clients, dealers, without_keys } => {
            check_security(protocol, security)
                .map_err(|reason| Error::input("--security", reason))?;
            let servers = addresses(protocol, &hosts, port)?;
            let dealers = match dealers {
                Some(dealers) => dealers,
                None if protocol.plays_tapes() => vec!["dealer".to_owned()],
                None => Vec::new(),
            };
            let plan =
                Plan { folder: dir, protocol, security, servers, clients, dealers, without_keys };
            let members = init(&plan)?;
            let value = json!({ "servers": plan.servers, "members": members });
            output.result(&value, || made(&plan, &members))?;
            output.remark(next(&plan, &members))
        }
        Cluster::Renew { dir, members, all, new_key } => {
            let which = if all { Renewal::All } else { Renewal::Of(members) };
            let renewed = renew(&dir, &which, new_key)?;
            output.result(&renewed, || {
                renewed.iter().map(|member| line(member, "")).collect::<Vec<_>>().join("\n")
            })?;
            let keys = if new_key { " and the .key file beside it" } else { "" };
            output.remark(format!(
                "\nCopy each{keys} to its member's machine; servers take it up by themselves."
            ))
        }
        Cluster::Revoke { dir, name } => {
            let lists = revoke(&dir, &name)?;
            let shown = || lists.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            output.result(&json!({ "revoked": name, "lists": shown() }), || shown().join("\n"))?;
            output.remark("\nCopy each to its member's machine, those of the servers first.")
        }
        Cluster::Request { dir, name } => {
            let made = request(&dir, &name)?;
            output.result(&made, || format!("{}", made.request.display()))?;
            output.remark(format!(
                "\nSend it to the authority, and tell its operator the fingerprint over another way: {}\n\
                 The key {} stays on this machine.",
                made.fingerprint,
                made.key.display()
            ))
        }
        Cluster::Sign { dir, name, request } => {
            let signed = sign(&dir, &name, &request)?;
            output
                .result(&signed, || format!("{:<16} {}", signed.role, signed.folder.display()))?;
            output.remark(format!(
                "\nThe key's fingerprint is {}: compare it with what the member says over another way. Then send the \
                 folder's files to the member, who puts them beside its key; none of them is secret.",
                signed.fingerprint
            ))
        }
        Cluster::AddClient { dir, name } => {
            let member = add_client(&dir, &name)?;
            output.result(&member, || line(&member, ""))
        }
        Cluster::Up { dir } => super::up::run(&dir, output),
        Cluster::AddDealer { dir, name } => {
            let member = add_dealer(&dir, &name)?;
            output.result(&member, || line(&member, ""))
        }
    }
}

fn made(plan: &Plan, members: &[Member]) -> String {
    let place = |index: usize| plan.servers.get(index).map_or("", String::as_str);
    let lines = members.iter().enumerate().map(|(index, member)| line(member, place(index)));
    lines.collect::<Vec<_>>().join("\n")
}

fn line(member: &Member, place: &str) -> String {
    format!("{:<16} {} {place}", member.role, member.config.display()).trim_end().to_owned()
}

fn next(plan: &Plan, members: &[Member]) -> String {
    let config = |index: usize| members[index].config.display().to_string();
    if plan.without_keys {
        return "\nEach member makes its key with `trefoil cluster request`, and gets its certificate with `trefoil \
                cluster sign` here; keep the authority's folder offline."
            .to_owned();
    }
    format!(
        "\nAll private keys were made here, which is for trials: with --without-keys members make their own.\n\
         Copy each folder to its machine; keep the authority's folder offline. Then:\n  \
         trefoil party --config {}   (and the other servers)\n  \
         trefoil --config {} status\n\
         Or all servers on this machine, for a trial: trefoil cluster up {}",
        config(0),
        config(plan.servers.len().min(members.len() - 1)),
        plan.folder.display()
    )
}
