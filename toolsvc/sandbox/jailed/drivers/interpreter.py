"""One session: a Python interpreter whose names live from call to call.

Owns the loop "read a call, run it, answer" in a process that is already confined. Foreign code
runs in this very process and may do anything to it; the worst it gains is its own end.

Invariants
- Output goes to one in-memory file that the host also holds, so that what was printed before a
  kill can still be read. Of what Python prints, bytes beyond `keep` are counted and dropped.
- SIGINT stops foreign code and nothing else: outside of it the signal does nothing.
- Only the session's own process answers: a copy that foreign code forked off ends here.

Each of hundreds of sessions wakes with cold caches, so what a call costs is how much it touches:
`run` and `_execute` call no helper of the standard library that they could do without.
"""

from __future__ import annotations

import _signal  # signal.signal puts an enum's lookup and its exception around the same function
import ast
import builtins
import io
import linecache
import os
import socket
import sys
import traceback
import types
from typing import Any

from .. import preload, wire

_CODE_BYTES = 16 * 1024 * 1024
_OUTPUT = 1
_PLAIN = True
"""compile's dont_inherit: this module's `from __future__` is not the foreign code's."""
_REHEARSAL = "print(0)\n0"
_WITH_A_TREE = "if 0:\n  0"
_REHEARSALS = 20
"""Python rewrites code that ran some eight times into a faster form."""


class _Kept(io.RawIOBase):
    """Writes the first `keep` bytes to the output file, counts the rest."""

    def __init__(self) -> None:
        self.keep = 0
        self.written = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _OUTPUT

    def write(self, data: Any) -> int:
        size = len(data)
        room = self.keep - self.written
        self.written += size
        if room > 0:
            try:  # noqa: SIM105
                os.write(_OUTPUT, data if size <= room else memoryview(data)[:room])
            except OSError:
                pass  # The foreign code may have closed it.
        return size


class Interpreter:
    """State that calls share, and the running of one call.

    Made once in the zygote, so that children inherit it ready instead of building it each.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._armed = False
        self._interrupted = False
        self._raw = _Kept()
        self._calls = 0
        self._open_streams()
        os.register_at_fork(before=lambda: self._out.flush())
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        for name in ("exit", "quit"):  # `site` adds them, and this process has no `site`
            setattr(builtins, name, _exit)
        self._main = main
        self._names = main.__dict__

    def rehearse(self) -> None:
        """Called in the zygote: it fills caches once for all children."""
        output, scratch = os.dup(_OUTPUT), os.memfd_create("rehearsal")
        try:
            os.dup2(scratch, _OUTPUT)
            self._pid = os.getpid()
            for _ in range(_REHEARSALS):
                self.run(_REHEARSAL, 8)
                self.run(_WITH_A_TREE, 8)
        finally:
            os.dup2(output, _OUTPUT)
            os.close(output)
            os.close(scratch)
        sys.modules["__main__"] = self._main
        sys.argv = [""]
        sys.path.insert(0, "")

    def enter(self) -> None:
        """Called in the child: from now on this process is the session."""
        self._pid = os.getpid()
        preload.reseed()
        # The first run copies the pages that every run writes; this way no caller waits for that.
        self.run(_REHEARSAL, 8)
        os.ftruncate(_OUTPUT, 0)
        self._calls = 0

    def run(self, code: str, keep: int) -> tuple[int, int]:
        """(status, bytes printed). Never raises; what the code raises is printed."""
        self._calls += 1
        os.ftruncate(_OUTPUT, 0)
        self._raw.keep, self._raw.written = keep, 0
        self._interrupted = False
        self._open_streams()
        _signal.signal(_signal.SIGINT, self._on_interrupt)
        try:
            status = self._execute(code)
        except KeyboardInterrupt:
            status = wire.INTERRUPTED
        except BaseException:  # noqa: BLE001 - telling of an error failed too, for want of memory
            status = wire.EXCEPTION
        self._armed = False
        try:  # noqa: SIM105
            self._out.flush()
        except (OSError, ValueError):
            pass  # The foreign code may have closed or detached it.
        if os.getpid() != self._pid:
            os._exit(0)
        return status, self._raw.written

    def _execute(self, code: str) -> int:
        try:
            name = f"<call {self._calls}>"
            linecache.cache[name] = (len(code), None, code.splitlines(True), name)
            try:
                self._armed = True
                statements, expression = _compiled(code, name)
                if statements is not None:
                    exec(statements, self._names)
                if expression is not None:
                    value = eval(expression, self._names)
                    if value is not None:
                        self._out.write(repr(value) + "\n")
            finally:
                self._armed = False
        except KeyboardInterrupt as error:
            if self._interrupted:
                return wire.INTERRUPTED
            self._explain(error)
            return wire.EXCEPTION
        except SystemExit as leaving:
            return self._explain_exit(leaving)
        except MemoryError as error:
            self._explain(error)
            return wire.OUT_OF_MEMORY
        except BaseException as error:  # noqa: BLE001 - whatever foreign code raises
            self._explain(error)
            return wire.EXCEPTION
        return wire.OK

    def _explain(self, error: BaseException) -> None:
        frames = error.__traceback__
        while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<call "):
            frames = frames.tb_next
        try:
            lines = traceback.format_exception(type(error), error, frames, limit=-12)
            self._out.write("".join(lines))
        except BaseException:  # noqa: BLE001 - its own __str__ fails, or memory is short
            self._out.write(f"{type(error).__name__}\n")

    def _explain_exit(self, leaving: SystemExit) -> int:
        if leaving.code in (None, 0):
            return wire.OK
        try:
            self._out.write(f"SystemExit: {leaving.code}\n")
        except BaseException:  # noqa: BLE001 - a foreign __str__
            self._out.write("SystemExit\n")
        return wire.EXCEPTION

    def _on_interrupt(self, number: int, frame: object) -> None:
        if self._armed:
            self._armed = False
            self._interrupted = True
            raise KeyboardInterrupt

    def _open_streams(self) -> None:
        """Restores the driver's streams, which the code of an earlier call may have replaced or
        closed."""
        out: io.TextIOWrapper | None = getattr(self, "_out", None)
        if out is None or out.closed:
            if self._raw.closed:
                kept = _Kept()
                kept.keep = self._raw.keep
                self._raw = kept
            out = io.TextIOWrapper(
                io.BufferedWriter(self._raw, 8192),
                encoding="utf-8",
                errors="backslashreplace",
                line_buffering=True,
            )
            self._out = out
        sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = out  # type: ignore[misc]


def _exit(code: object = None) -> None:
    """Ends the call, as `sys.exit` does."""
    raise SystemExit(code)


def _compiled(code: str, name: str) -> tuple[types.CodeType | None, types.CodeType | None]:
    """The statements, and the last expression; None for a part that is missing."""
    in_two = _compiled_in_two(code, name)
    if in_two is not None:
        return in_two
    try:  # Most calls are one expression, which needs no tree.
        return None, compile(code, name, "eval", 0, _PLAIN)
    except SyntaxError:
        pass  # Its errors are reported as those of a program.
    tree: ast.Module = compile(code, name, "exec", ast.PyCF_ONLY_AST, _PLAIN)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = compile(tree, name, "exec", 0, _PLAIN) if tree.body else None
    if last is None:
        return statements, None
    return statements, compile(ast.Expression(last.value), name, "eval", 0, _PLAIN)


def _compiled_in_two(code: str, name: str) -> tuple[types.CodeType, types.CodeType] | None:
    """The same of a program whose last line is an expression, without a tree, which costs several
    times as much; None where that is not sure.

    What is a program up to a line's end has ended there: nothing that comes at the start of the
    next line goes on with it, but what is no expression (`else`).
    """
    told = code.rstrip()
    at = told.rfind("\n") + 1
    if not at or "\r" in code or not (told[at].isalnum() or told[at] in "_([{'\""):
        return None
    before = code[:at]
    if before.endswith("\\\n"):
        return None
    try:
        # At its own line, for the errors that it may raise.
        last = compile("\n" * before.count("\n") + told[at:], name, "eval", 0, _PLAIN)
        return compile(before, name, "exec", 0, _PLAIN), last
    except (SyntaxError, ValueError):
        return None  # Its errors are reported as those of a program.


def prepare() -> Interpreter:
    """In the zygote, once."""
    interpreter = Interpreter()
    interpreter.rehearse()
    return interpreter


def serve(interpreter: Interpreter, channel: socket.socket) -> None:
    """Answers calls until the host hangs up. Does not return."""
    interpreter.enter()
    channel.send(bytes((wire.LAST, wire.READY)))
    incoming = wire.Assembler(_CODE_BYTES)
    while True:
        packet = channel.recv(wire.PACKET_BYTES)
        if not packet:
            os._exit(0)
        message = incoming.feed(packet)
        if message is None:
            continue
        call = wire.parse_call(message)
        status, written = interpreter.run(call.code.decode("utf-8", "replace"), call.keep)
        channel.send(bytes((wire.LAST,)) + wire.pack_done(call.number, status, written))
