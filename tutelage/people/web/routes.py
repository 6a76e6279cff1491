"""Every address of the application, with who may use it. The tests of authorisation are made from this table."""

from tutelage.people.web.call import Route
from tutelage.people.web.pages import joining, rating
from tutelage.people.web.pages.owner import exports, invitations, items, models, overview, raters, settings

ROUTES = (
    Route("GET", "/", "anyone", "page", joining.home),
    Route("GET", "/join/{token}", "anyone", "page", joining.invitation),
    Route("POST", "/join/{token}", "anyone", "form", joining.join),
    Route("GET", "/return/{token}", "anyone", "page", joining.way_back),
    Route("POST", "/return/{token}", "anyone", "form", joining.come_back),
    Route("POST", "/leave", "rater", "form", joining.leave),
    Route("GET", "/welcome", "rater", "page", joining.welcome),
    Route("POST", "/welcome", "rater", "form", joining.agree),
    Route("GET", "/rate", "rater", "page", rating.screen),
    Route("POST", "/rate/next", "rater", "json", rating.following),
    Route("POST", "/rate/answers", "rater", "json", rating.receive),
    Route("POST", "/rate/renew", "rater", "json", rating.keep),
    Route("GET", "/rate/recent", "rater", "json", rating.recent),
    Route("GET", "/owner", "owner", "page", overview.overview),
    Route("GET", "/owner/history", "owner", "page", overview.history),
    Route("GET", "/owner/raters", "owner", "page", raters.table),
    Route("GET", "/owner/raters/{number}", "owner", "page", raters.detail),
    Route("POST", "/owner/raters/{number}", "owner", "form", raters.change),
    Route("POST", "/owner/raters/{number}/link", "owner", "form", raters.bring_back),
    Route("POST", "/owner/exclusions", "owner", "form", raters.leave_out),
    Route("GET", "/owner/items", "owner", "page", items.table),
    Route("GET", "/owner/items/{key:path}", "owner", "page", items.detail),
    Route("GET", "/owner/models", "owner", "page", models.standings),
    Route("GET", "/owner/settings", "owner", "page", settings.form),
    Route("POST", "/owner/settings/question", "owner", "form", settings.ask),
    Route("POST", "/owner/settings/plan", "owner", "form", settings.plan),
    Route("POST", "/owner/settings/state", "owner", "form", settings.state),
    Route("GET", "/owner/invitations", "owner", "page", invitations.table),
    Route("POST", "/owner/invitations", "owner", "form", invitations.create),
    Route("POST", "/owner/invitations/withdraw", "owner", "form", invitations.withdraw),
    Route("GET", "/owner/export", "owner", "page", exports.form),
    Route("POST", "/owner/export", "owner", "form", exports.download),
)
