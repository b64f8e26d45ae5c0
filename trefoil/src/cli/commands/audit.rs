//! `trefoil audit`: checks a server's record of requests.

use crate::{
    base::Result,
    cli::{arguments::Audit, output::Output},
    server::audit,
};

pub(super) fn run(command: &Audit, output: Output) -> Result<()> {
    let Audit::Verify { files } = command;
    let found = audit::verify(files)?;
    output.result(&found, || {
        format!(
            "lines {} to {} are as they were written\nhead {}",
            found.first, found.last, found.head
        )
    })
}
