"""An agent of the standard library alone, for tests of `--agent`. The column `does` of a row says what it does."""

import json
import os
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

ROW = json.load(sys.stdin)
DOES = ROW.get("does", "talk")
ADDRESS = urlsplit(os.environ["OPENAI_BASE_URL"])
TOOL = json.loads(ROW.get("tool", "null"))


def ask(messages, retry=0, leaves=False, **more):
    """(status, reply) of the policy; nothing for a client that leaves without waiting."""
    connection = HTTPConnection(ADDRESS.hostname, ADDRESS.port, timeout=60.0)
    body = {"model": "gpt-4o", "messages": messages} | ({"tools": [TOOL]} if TOOL else {}) | more
    headers = {"content-type": "application/json", "x-stainless-retry-count": str(retry)}
    connection.request("POST", f"{ADDRESS.path}/chat/completions", json.dumps(body), headers)
    if leaves:
        return connection.close()
    response = connection.getresponse()
    return response.status, response.read().decode()


def said(messages, **more):
    """The message of the policy."""
    status, reply = ask(messages, **more)
    if status != 200:
        sys.exit(f"{status} {reply}")
    return json.loads(reply)["choices"][0]["message"]


messages = ROW["messages"]
if DOES == "talk":
    answer = said(messages, temperature=0.1)
    for number in range(1, ROW.get("turns", 2)):
        messages += [answer, {"role": "user", "content": f"No, {number}."}]
        answer = said(messages)
elif DOES == "call":
    answer = said(messages)
    while answer.get("tool_calls"):
        results = []
        for call in answer["tool_calls"]:
            place = json.loads(call["function"]["arguments"])["place"]
            results.append({"role": "tool", "tool_call_id": call["id"], "content": {"Ayr": "6.5"}[place]})
        messages += [answer, *results]
        answer = said(messages)
elif DOES == "retry":
    first = said(messages)
    assert said(messages, retry=1) == first
elif DOES == "twice":
    said(messages)
    said(messages)
elif DOES == "leave":
    answer = said(messages)
    messages += [answer] if ROW.get("continues") else []
    ask([*messages, {"role": "user", "content": "Another."}], leaves=True)
elif DOES == "aside":  # another conversation in between
    answer = said(messages)
    said([{"role": "user", "content": "Aside."}])
    said([*messages, answer, {"role": "user", "content": "Go on."}])
elif DOES == "stream":
    status, reply = ask(messages, stream=True)
    assert reply.endswith("data: [DONE]\n\n"), reply
    delta = json.loads(reply.split("\n\n")[0].removeprefix("data: "))["choices"][0]["delta"]
    messages += [{"role": "assistant", "content": delta["content"]}]
    said([*messages, {"role": "user", "content": "No, 1."}])
elif DOES == "refused":
    status, reply = ask(messages, **ROW["body"])
    sys.exit(f"{status} {reply}")
elif DOES == "system":
    said([{"role": "system", "content": "Be brief."}, *messages])
elif DOES == "recover":
    assert ask([*messages, {"role": "assistant", "content": "No question."}])[0] == 400
    said(messages)
elif DOES == "exit":
    said(messages)
    print("what is wrong", file=sys.stderr)
    sys.exit(ROW["status"])
elif DOES == "hang":
    said(messages)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
    with open(ROW["file"], "a") as file:
        file.write(f"{child.pid}\n")
    if ROW.get("stays"):
        time.sleep(99)
elif DOES == "count":
    with open(ROW["file"], "a") as file:
        file.write("+")
        file.flush()
        late = time.monotonic() + 20
        while Path(ROW["file"]).read_text().count("+") % 2 and time.monotonic() < late:  # wait for the other of a pair
            time.sleep(0.01)
        said(messages)
        file.write("-")
