"""The application in the browser: what raters and owners see. `create_app(store)` makes it, `create_server` that of
several studies; it never imports torch.

app.py       the application: pages, files
front.py     several studies on one server (prefix.py: sites below a path)
signing/     signing in without a link
routes.py    every address, with who may use it
call.py      one request: who asks, what was sent, and the refusals
auth.py      cookies, where requests may come from, invitations tried too often
templating.py  the templates in each language; languages.py: which of them a page is in
render.py    text of models as HTML that can do nothing (maths.py: formulae)
pages/       what each address does
api/         the addresses for programs
client.py    a rater over HTTP, for simulations and load tests
"""

from tutelage.people.web.app import Served, create_app, create_server

__all__ = ["Served", "create_app", "create_server"]
