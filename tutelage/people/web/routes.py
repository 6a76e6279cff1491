"""Every address of the application, with who may use it. The tests of authorisation are made from this table."""

from tutelage.people.web.call import Route
from tutelage.people.web.pages import joining, rating

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
)
