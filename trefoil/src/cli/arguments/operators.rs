//! Commands of operators: clusters, servers, their stores and audit logs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use cluster_protocols::ProtocolChoice;
use mpc_core::Security;

use super::security;

/// Commands for a cluster.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Make a cluster's authority, certificates and configuration files
    #[command(long_about = "\
Make a cluster's authority, certificates and configuration files.

DIR gets a folder for each member: one for each server, party-0 and so on, one for each client and each dealer. Copy each to its
machine, as a whole, over a safe way: it holds a private key. Keep DIR/authority offline; whoever has it
can enter the cluster in any role.")]
    Init {
        /// The folder to make
        dir: PathBuf,
        /// The protocol on shares: rss is three servers; rss-dealt two with tapes that a dealer made; additive two and
        /// their dealer as a third server; dealt-2 to dealt-16 that many, and their dealer as one more server
        #[arg(long, default_value_t, value_name = "NAME")]
        protocol: ProtocolChoice,
        /// The defence against a server that lies: semi-honest for none; checked: before anything is revealed, each
        /// server proves to the others that its messages were right
        #[arg(long, default_value = "semi-honest", value_parser = security, value_name = "NAME")]
        security: Security,
        /// The servers' machines: as many of HOST or HOST:PORT [default: ports of this machine]
        #[arg(long, value_delimiter = ',', value_name = "A,B,C")]
        hosts: Vec<String>,
        /// The port of hosts without one; on the same host the next ones follow
        #[arg(long, default_value_t = crate::config::PORT)]
        port: u16,
        /// Names of the clients
        #[arg(long, value_delimiter = ',', default_value = "client", value_name = "NAMES")]
        clients: Vec<String>,
        /// Names of the dealers of tapes [default: dealer, if servers play tapes]
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        dealers: Option<Vec<String>>,
        /// Make no member's key here: each makes its own with `cluster request`
        #[arg(long)]
        without_keys: bool,
    },
    /// Run all servers of a cluster on this machine, for a trial
    #[command(long_about = "\
Run all servers of a cluster on this machine, for a trial.

Makes the cluster if DIR is not there: three servers at ports 7100 to 7102 and one client. Says when the servers have
found each other, and ends them at an interrupt (Ctrl-C). In real use, different people run `trefoil party` on machines
of their own.")]
    Up {
        /// The cluster's folder
        #[arg(default_value = "cluster")]
        dir: PathBuf,
    },
    /// Make a member's key where it stays, and a request for the authority
    #[command(long_about = "\
Make a member's key where it stays, and a request for the authority.

Run it on the member's machine. DIR gets the private key and request.pem, which goes to whoever holds the cluster's
authority: `trefoil cluster sign` answers it. Put the files that come back into DIR as well. Tell the authority's
operator the key's fingerprint over another way, so that nobody on the way can exchange the request.")]
    Request {
        /// The member's folder
        dir: PathBuf,
        /// party-0, party-1, party-2, the client's name, or "dealer NAME"
        name: String,
    },
    /// Make the certificate that a member's request asks for
    #[command(long_about = "\
Make the certificate that a member's request asks for.

Run it where the cluster was made, with its authority. You say whose the request is; compare the key's fingerprint with
what the member tells you over another way.")]
    Sign {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// party-0, party-1, party-2, the client's name, or "dealer NAME"
        name: String,
        /// The request
        request: PathBuf,
    },
    /// Make new certificates for members of a cluster, before the old ones end
    #[command(long_about = "\
Make new certificates for members of a cluster, before the old ones end.

Run it where the cluster was made, with its authority. Then copy each renewed file to the same place on
its member's machine: servers take it up by themselves within seconds, running jobs go on.")]
    Renew {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// party-0, party-1, party-2, names of clients, "dealer NAME", or authority
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "MEMBER")]
        members: Vec<String>,
        /// All members
        #[arg(long)]
        all: bool,
        /// Make new keys too, for instance because one may be known to others
        #[arg(long)]
        new_key: bool,
    },
    /// Shut a member out: none of its certificates is accepted any more
    #[command(long_about = "\
Shut a member out: none of its certificates is accepted any more.

Run it where the cluster was made, with its authority. Then copy revoked.pem to the servers: they take
it up by themselves within seconds and end the member's connections. `cluster renew --new-key` lets a
member in again.")]
    Revoke {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// The client's name, "dealer NAME", or party-0, party-1 or party-2
        name: String,
    },
    /// Make the files of one more client
    AddClient {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// The client's name: 1 to 40 of a-z, 0-9 and -
        name: String,
    },
    /// Make the files of one more dealer of tapes
    #[command(long_about = "\
Make the files of one more dealer of tapes.

A dealer makes tapes for two servers and signs them: `trefoil --config dealer-NAME/dealer.toml tape make`. It must be
nobody who sees answers, or works with somebody who does: from answers a dealer that lies could learn inputs.")]
    AddDealer {
        /// The cluster's folder, with its authority
        dir: PathBuf,
        /// The dealer's name: 1 to 40 of a-z, 0-9 and -, and no client's
        name: String,
    },
}

/// Arguments of `party`.
#[derive(Debug, Args)]
#[command(override_usage = "trefoil party --config <FILE> [--cell <NUMBER>] [--check]")]
pub struct Party {
    /// Read the configuration, the certificate and every file of every model, report damage, and end; for a server
    /// that is stopped
    #[arg(long)]
    pub check: bool,
    /// The number of this worker, where the file has [cells]; else what the file says
    #[arg(long, value_name = "NUMBER")]
    pub cell: Option<u16>,
    /// End as if asked to when the process that started this one ends
    #[arg(long, hide = true)]
    pub ends_with_parent: bool,
}

/// Commands for a server's store.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Make a key for a server's store
    #[command(long_about = "\
Make a key for a server's store.

FILE gets 64 hexadecimal letters that its owner alone may read. Name it in party.toml, then run `trefoil store rekey`:

  [store]
  key = \"store.key\"        # or: command = [\"program\", \"argument\"], which prints the letters

Whoever loses the key loses this server's shares; keep a copy apart from the backups of the data folder.")]
    Key {
        /// The file to make
        file: PathBuf,
    },
    /// Encrypt everything anew under the key that party.toml names, for a server that is stopped
    #[command(long_about = "\
Encrypt everything anew under the key that party.toml names, for a server that is stopped.

What was not encrypted is from now on; what was encrypted under another key needs that with --from. Without a key in
party.toml everything is written plain again.

  trefoil --config party.toml store rekey --from old.key")]
    Rekey {
        /// The key under which everything lies now
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Read every file of every model, data set and run, and every count, for a server that is stopped
    #[command(long_about = "\
Read every file of every model, data set and run, and every count, for a server that is stopped.

Lists each with what was read, and ends with exit code 8 if one is damaged. In a store with a key, manifests that were not
written with it are damaged. `trefoil party --check` does the same after it has read the configuration.

  trefoil --config party.toml store verify")]
    Verify,
    /// Copy models, data sets, runs and counts into a folder, for a server that is stopped
    #[command(long_about = "\
Copy models, data sets, runs and counts into a folder, for a server that is stopped.

Every file is read and checked first. The copy is encrypted as the store is, or under the key of --key. It has the counts
of openings, privacy, used places of tapes and allowances, and no tapes: a place that is used twice tells secrets. The
private key and party.toml are not in it.

  trefoil --config party.toml store export backup-1")]
    Export {
        /// The folder to make
        folder: PathBuf,
        /// The names to copy [default: all]
        names: Vec<String>,
        /// Encrypt the copy under this key instead of the store's
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
    /// Take models, data sets, runs and counts from a copy of this server's store, for a server that is stopped
    #[command(long_about = "\
Take models, data sets, runs and counts from a copy of this server's store, for a server that is stopped.

Every file of the copy is read and checked before anything changes. Copies of another party or cluster are refused. Each name is
taken as a whole or not at all; if the command is interrupted, run it again. Counts never get lower: of each, the larger
one stays.

  trefoil --config party.toml store import backup-1")]
    Import {
        /// The folder that `store export` made
        folder: PathBuf,
        /// The names to take [default: all]
        names: Vec<String>,
        /// The key that the copy is encrypted under, if it is not the store's
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Take the copy's versions in place of those that are here, or that are damaged
        #[arg(long)]
        replace: bool,
    },
    /// Rebuild what one server has lost from the two others; run it at all three, stopped, at once
    #[command(long_about = "\
Rebuild what one server has lost from the two others; run it at all three, stopped, at once.

Each operator runs the same command: that is the consent to it. The lost server gets the shares that it had, each
component from the server that holds it as well, and the counts of openings and of privacy. A model, data set or run that
the two others do not hold alike is named and left. First shut out the keys that were lost: `trefoil cluster revoke
party-1`, then `trefoil cluster renew --new-key`, or `request` and `sign`.

  trefoil --config party.toml store rebuild party-1")]
    Rebuild {
        /// The server that has lost something: party-0, party-1 or party-2
        party: String,
        /// Seconds to wait for the two others
        #[arg(long, default_value_t = 600, value_name = "SECONDS")]
        wait: u64,
    },
}

/// Commands for audit logs.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Check that no line of an audit log was changed or taken out
    #[command(long_about = "\
Check that no line of an audit log was changed or taken out.

Each line has a number, and a hash of itself and of the line before. FILES are those of one server, from the oldest to the
newest: audit.jsonl.2 audit.jsonl.1 audit.jsonl. Lines that are missing at the end show only beside an earlier result:
note `head` elsewhere now and then, and look for it in the file.")]
    Verify {
        /// The files, from the oldest to the newest
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}
