"""The scripted server as a process, for suites: ``python -m tests.loadtest.scripted_main PORT [--gap S] ...``."""

import argparse
import asyncio

from aiohttp import web

from tests.loadtest.scripted import Call, Script, ScriptedServer, tokens_of


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--gap", type=float, default=0.0, help="seconds between tokens")
    parser.add_argument("--shift", type=int, default=0, help="added to the last token: another model")
    parser.add_argument("--start", type=float, default=0.0, help="seconds before it listens")
    parser.add_argument("--die", action="store_true", help="say why, and end at once")
    options = parser.parse_args()
    if options.die:
        raise SystemExit("no such model")

    def script(call: Call) -> Script:
        *first, last = tokens_of(call)
        return Script((*first, last + options.shift), gap_s=options.gap)

    asyncio.run(asyncio.sleep(options.start))
    web.run_app(ScriptedServer(script).app(), host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
