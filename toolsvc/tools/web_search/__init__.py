"""The web for a policy: a search API, and the pages that it finds.

`web_search_tool` speaks with the policy; `results` is what the policy reads. `api` is the search
API. `fetch` gets `pages` from public addresses alone, and `extract` takes their text out by the
`parser` in a confined process. `charset` decodes their bytes.
"""
