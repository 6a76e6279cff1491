"""The web application for raters and owners: `create_app(store)` for one study, `create_server` for several. It never
imports torch.

app.py         the ASGI application: routes, static files, headers, sites below a path, several studies on a server
routes.py      table of routes with admitted roles
call.py        requests: authentication, parsing, error responses
auth.py        session cookies, origin checks, rate limits
identity.py    sign-in methods other than links
forms.py       form fields as values, and operations by form
templating.py  choice of the language, and Jinja environments per language with their filters
render.py      model-written text as safe HTML
pages/         handlers of the routes
api/           the HTTP API for programs
client.py      HTTP client for one rater, for simulations and load tests
"""

from tutelage.people.web.app import Served, create_app, create_server

__all__ = ["Served", "create_app", "create_server"]
