"""HTTP code that central's API, the site's API and their clients share."""
