"""Compute shares on a simulated GPU: cases, what is measured of them, bars, baselines, drawings.

`cases` says what is run, `metrics` what a share over time is worth, `judge` puts both together,
`runner` plays cases on a stage, `report` and `drawing` show them. All but `runner` and `baselines`
are pure: values in, values out.
"""
