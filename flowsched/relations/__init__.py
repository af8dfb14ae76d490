"""How tasks relate through topology domains: the definitions, the counts by machine and domain, and the rule they give."""
