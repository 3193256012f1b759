"""The web for a policy: a search API, and the pages that it finds.

`web_search_tool` speaks with the policy (`action` is how it asks, `results` what it reads). `api`
is the search API; `pages` are fetched (`fetch`, from public `addresses` alone) and their text is
taken out (`extract`) by the `parser` in a confined process. `charset` decodes their bytes.
"""
