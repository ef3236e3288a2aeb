"""Who writes cards: any program, or any OpenAI-compatible endpoint. Off until configured.

A program reads the prompt on stdin and prints its answer. Known to work, with the flags
that keep its own run out of the transcripts that fabled watches:

    command = ["claude", "-p", "--no-session-persistence", "--strict-mcp-config", "--tools", ""]
    command = ["llm", "--no-log", "-m", "MODEL"]
    command = ["ollama", "run", "MODEL"]

An endpoint is asked through the maintained `openai` client (the extra `fabled[openai]`).
Its key comes from the environment or, where `keyring` is installed, from the system's
keyring (service "fabled", the URL as user name), never from the configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fabled.errors import FabledError, ProviderFailed, ProviderRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabled.system import Processes

COMMAND, OPENAI = "command", "openai"
_SHOWN = 300
_HOPELESS = frozenset({400, 401, 403, 404, 422})


class Answer(NamedTuple):
    """What a provider wrote, and the model it says it is."""

    text: str
    model: str | None


class Provider(Protocol):
    """Writes one answer to one prompt.

    Attributes:
        name: What the card's `source` says.
    """

    name: str

    def write(self, prompt: str) -> Answer:
        """Ask once.

        Raises:
            ProviderFailed: It did not answer; `retry` says whether asking again can help.
        """


class CommandProvider:
    """A program that reads the prompt on stdin.

    Args:
        processes: Runs it.
        command: The program and its arguments; no shell.
        timeout_s: Then it is ended.
        model: What to call it; its own name when empty.
    """

    name = COMMAND

    def __init__(
        self, processes: Processes, command: Sequence[str], timeout_s: float, model: str
    ) -> None:
        self._processes = processes
        self._command = list(command)
        self._timeout_s = timeout_s
        self._model = model or self._command[0].rpartition("/")[2]

    def write(self, prompt: str) -> Answer:
        """Run the program once; raises as `Provider.write`."""
        program = self._command[0]
        try:
            ran = self._processes.run(
                self._command, prompt.encode("utf-8", "replace"), self._timeout_s
            )
        except FabledError as fault:
            raise ProviderFailed(
                f"{program} cannot be run: {fault.message}", hint="Check cards.command."
            ) from fault
        if ran.status is None:
            raise ProviderFailed(f"{program} did not answer within {self._timeout_s:.0f} s")
        if ran.status != 0:
            said = ran.err.decode("utf-8", "replace").strip()[-_SHOWN:]
            raise ProviderFailed(f"{program} ended with status {ran.status}: {said}")
        return Answer(ran.out.decode("utf-8", "replace"), self._model)


class OpenAIProvider:
    """An endpoint that speaks the chat completions protocol.

    Args:
        url: Its base URL.
        model: The model to ask for.
        key: The API key; local endpoints need none.
        timeout_s: For one answer.

    Raises:
        ProviderFailed: The client library is not installed.
    """

    name = OPENAI

    def __init__(self, url: str, model: str, key: str | None, timeout_s: float) -> None:
        try:
            import openai  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as fault:
            raise ProviderFailed(
                "the openai client is not installed", hint="Install fabled[openai]."
            ) from fault
        self._errors = openai
        self._model = model
        # Retries and their back-off are ours: they are counted, and end when the daemon does.
        self._client = openai.OpenAI(
            base_url=url, api_key=key or "none", timeout=timeout_s, max_retries=0
        )

    def write(self, prompt: str) -> Answer:
        """Ask the endpoint once; raises as `Provider.write`."""
        errors = self._errors
        try:
            reply = self._client.chat.completions.create(
                model=self._model, messages=[{"role": "user", "content": prompt}], temperature=0
            )
        except errors.APIStatusError as fault:
            status = fault.status_code
            kind = ProviderRefused if status in _HOPELESS else ProviderFailed
            raise kind(f"the endpoint answered {status}: {str(fault)[:_SHOWN]}") from fault
        except errors.OpenAIError as fault:
            raise ProviderFailed(f"the endpoint did not answer: {str(fault)[:_SHOWN]}") from fault
        except (ValueError, TypeError, KeyError) as fault:
            raise ProviderFailed(f"the endpoint's answer is none: {fault!r}"[:_SHOWN]) from fault
        answer: Any = reply  # what an endpoint sends need not have the form that it should
        try:
            text, model = answer.choices[0].message.content, answer.model
        except (AttributeError, IndexError, TypeError) as fault:
            raise ProviderFailed("the endpoint's answer holds no message") from fault
        if not isinstance(text, str):
            raise ProviderFailed("the endpoint's answer holds no text")
        return Answer(text, model if isinstance(model, str) else self._model)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def keyring_key(url: str) -> str | None:
    """The key in the system's keyring; None where there is no keyring, or no such key."""
    try:
        import keyring  # noqa: PLC0415 - not a dependency: used where it is installed
        from keyring.errors import KeyringError  # noqa: PLC0415
    except ImportError:
        return None
    try:
        found: str | None = keyring.get_password("fabled", url)
    except KeyringError:
        return None  # locked, or without a back end: the environment may have the key
    return found
