"""`bookkeeper shell ...`: BookKeeper's admin shell, under the names and options that operators know.

A module a subject; each has functions that are commands, and `COMMANDS` here names them. What they print are the texts
of Java's shell, 4.17; exit code 0 means that it was done, anything else that it was not. Further verbs of that shell
go here too.

Options may be said as there, with one dash or two (`-force`, `--force`, `-f`).

cluster  make, format, remove, name
bookies  which there are, what they say of themselves
cookies  look at, save, put back, take away
ledgers  which there are, what is known of them, what is in them
trials   does it work?
autorecovery  marks of under-replicated ledgers, the auditor, switches
why      why an entry can or cannot be read
recovery  copying by hand what bookies hold
renames  another id for a bookie, in the metadata of ledgers
journals, entry_logs, index  a look into a bookie's files
offline/  checking, changing, removing the files of a bookie that is stopped
records  what these print
places   where a bookie's files are
common   where the cluster is, and asking before something is destroyed
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from . import (
    autorecovery,
    bookies,
    cluster,
    cookies,
    entry_logs,
    index,
    journals,
    ledgers,
    recovery,
    renames,
    trials,
    why,
)
from .offline import begin, checks, looks, mending
from .offline import renames as cookie_renames

app = typer.Typer(
    no_args_is_help=True,
    help="Make, look at and remove clusters, and look into a bookie's files: BookKeeper's admin shell.",
)

COMMANDS: dict[str, Callable[..., None]] = {
    "initnewcluster": cluster.initnewcluster,
    "metaformat": cluster.metaformat,
    "nukeexistingcluster": cluster.nukeexistingcluster,
    "whatisinstanceid": cluster.whatisinstanceid,
    "listbookies": bookies.listbookies,
    "bookieinfo": bookies.bookieinfo,
    "clusterinfo": bookies.clusterinfo,
    "endpointinfo": bookies.endpointinfo,
    "cookie_get": cookies.cookie_get,
    "cookie_create": cookies.cookie_create,
    "cookie_update": cookies.cookie_update,
    "cookie_delete": cookies.cookie_delete,
    "cookie_generate": cookies.cookie_generate,
    "listledgers": ledgers.listledgers,
    "ledgermetadata": ledgers.ledgermetadata,
    "readledger": ledgers.readledger,
    "deleteledger": ledgers.deleteledger,
    "simpletest": trials.simpletest,
    "bookiesanity": trials.bookiesanity,
    "listunderreplicated": autorecovery.listunderreplicated,
    "whoisauditor": autorecovery.whoisauditor,
    "autorecovery": autorecovery.autorecovery,
    "queryautorecoverystatus": autorecovery.queryautorecoverystatus,
    "lostbookierecoverydelay": autorecovery.lostbookierecoverydelay,
    "triggeraudit": autorecovery.triggeraudit,
    "forceauditchecks": autorecovery.forceauditchecks,
    "why": why.why,
    "recover": recovery.recover,
    "decommissionbookie": recovery.decommissionbookie,
    "updateledgers": renames.updateledgers,
    "updateBookieInLedger": renames.update_bookie_in_ledger,
    "readjournal": journals.readjournal,
    "lastmark": journals.lastmark,
    "readlog": entry_logs.readlog,
    "readlogmetadata": entry_logs.readlogmetadata,
    "ledger": index.ledger,
    "initbookie": begin.initbookie,
    "bookieformat": begin.bookieformat,
    "updatecookie": cookie_renames.updatecookie,
    "listfilesondisc": looks.listfilesondisc,
    "activeledgers": looks.activeledgers,
    "localconsistencycheck": checks.localconsistencycheck,
    "check-db-ledgers-index": checks.check_db_ledgers_index,
    "rebuild-db-ledger-locations-index": mending.rebuild_db_ledger_locations_index,
    "rebuild-db-ledgers-index": mending.rebuild_db_ledgers_index,
}

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
