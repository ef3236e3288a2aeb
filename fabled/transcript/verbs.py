"""The closed list of work verbs, and every form in which they are written.

A thread's operatives say what was done in it. The list is closed on purpose: the same
words mean the same in every history, and nothing has to be tagged by anybody.
"""

from __future__ import annotations

_VERBS = """
abort accept activate adapt add adjust allow analyze annotate append apply approve archive ask
assert assign attach audit authenticate authorize automate backport back-up benchmark bisect block
bootstrap break browse build bump cache calculate call cancel capture change check choose clarify
clean clear clone close collect combine comment commit compare compile compress compute configure
confirm connect consolidate convert copy correct count crash create customize debug decide decode
decompose decouple define delete deliver deploy deprecate derive describe design detect diagnose
diff disable discard discover discuss document download draft drop dump edit eliminate embed emit
enable encode encrypt enforce enhance ensure estimate evaluate examine exclude execute expand
explain explore export expose extend extract fail fetch filter find finish fix flag format fork
generate group handle hide hook identify ignore implement import improve include index inline
insert inspect install integrate introduce investigate isolate iterate join label launch lint
list load localize lock log measure merge migrate minimize mock modify monitor mount move name
normalize notify optimize order organize outline override package parallelize parse patch paste
persist pin plan port postpone prepare print prioritize process profile promote propose prototype
prove provide provision prune publish pull purge push query rank read rebase rebuild reconcile
record recover redesign reduce refactor reformat refresh register reject release reload remove
rename render reorder reorganize repair replace replay reply report reproduce request require
reset resize resolve restart restore restructure resume retry return revert review revise rewrite
roll-back run sanitize save scaffold scale scan schedule seed select send serialize serve set
setup ship show shrink simplify simulate skip sort specify split squash stage start stop store
stream strip stub submit subscribe summarize support suppress switch sync tag test throttle tidy
trace track train transfer transform translate trigger trim troubleshoot truncate try tune
uninstall unify unlock update upgrade upload use validate verify visualize wait warn watch wire
wrap write
"""
_IRREGULAR = {
    "break": "broke broken breaking breaks",
    "build": "built building builds",
    "choose": "chose chosen choosing chooses",
    "find": "found finding finds",
    "hide": "hid hidden hiding hides",
    "prove": "proved proven proving proves",
    "read": "reads reading",
    "rebuild": "rebuilt rebuilding rebuilds",
    "reset": "resets resetting",
    "rewrite": "rewrote rewritten rewriting rewrites",
    "run": "ran running runs",
    "send": "sent sending sends",
    "set": "sets setting",
    "show": "showed shown showing shows",
    "shrink": "shrank shrunk shrinking shrinks",
    "split": "splits splitting",
    "write": "wrote written writing writes",
    "back-up": "backup backups backed-up backing-up",
    "roll-back": "rollback rollbacks rolled-back rolling-back",
    "setup": "set-up setups",
    "sync": "synced syncing syncs synchronize synchronized synchronizes synchronizing",
    "debug": "debugged debugging debugs",
    "troubleshoot": "troubleshot troubleshooting troubleshoots",
    "program": "programmed programming programs",
}
_DOUBLED_TEXT = """
bootstrap commit drop embed emit flag log pin plan scan ship skip step stop strip stub submit tag
trim wrap
"""
_DOUBLED = frozenset(_DOUBLED_TEXT.split())
_BRITISH = {
    "ize": "ise",
    "izes": "ises",
    "ized": "ised",
    "izing": "ising",
    "yze": "yse",
    "yzes": "yses",
    "yzed": "ysed",
    "yzing": "ysing",
}
_VOWELS = frozenset("aeiou")


def _forms(verb: str) -> list[str]:
    """The regular inflections of a verb, or the irregular ones where it has any."""
    if verb in _IRREGULAR:
        return [verb, *_IRREGULAR[verb].split()]
    if verb.endswith("e"):
        return [verb, verb + "s", verb + "d", verb[:-1] + "ing"]
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        return [verb, verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing"]
    if verb in _DOUBLED:
        return [verb, verb + "s", verb + verb[-1] + "ed", verb + verb[-1] + "ing"]
    if verb.endswith(("s", "x", "ch", "sh")):
        return [verb, verb + "es", verb + "ed", verb + "ing"]
    return [verb, verb + "s", verb + "ed", verb + "ing"]


def _british(form: str) -> list[str]:
    return [
        form.removesuffix(ending) + other
        for ending, other in _BRITISH.items()
        if form.endswith(ending)
    ]


def _table() -> dict[str, str]:
    found: dict[str, str] = {}
    for verb in _VERBS.split():
        for form in _forms(verb):
            for spelling in (form, *_british(form)):
                found.setdefault(spelling, verb)
    return found | {verb: verb for verb in _VERBS.split()}


FORMS = _table()
"""Every form, lower case, and the verb it is a form of."""

_NOUNS = """
archive audit benchmark block build cache call change check clone comment commit copy count crash
deploy design diff document download draft dump edit export filter fix flag fork format group
handle hook import index join label launch list load lock log measure merge mock monitor mount
name order override package patch plan port process profile prototype pull push query rank read
rebase record refresh register release reload repair replay report request reset restart restore
retry return review rollback run scale scan schedule seed set setup sort split stage start stop
store stream stub switch sync tag test throttle trace track transfer transform trigger update
upgrade upload use wait watch write
"""
NOUNS = frozenset(_NOUNS.split())
"""The ones among them that are as often names of things."""
