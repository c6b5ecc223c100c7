"""Proposed rules: names in several languages, values, what the model ignores, and the file to confirm."""

import tomllib

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import plausiflow as pf
from plausiflow.cli.rules_file import read_rules
from plausiflow.errors import InvalidInputError
from plausiflow.suggestions.meanings import find_meaning, is_identifier, read_meanings, words_of

IMMUTABLE = [
    "age", "Alter", "edad", "wiek", "âge_client", "sex", "Geschlecht", "género", "płeć", "race",
    "Nationalität",    "narodowość", "religion", "disability", "marital-status", "Familienstand",
    "état civil", "stan cywilny",
    "date_of_birth", "Geburtsdatum", "dependents", "NumberOfDependents", "Anzahl Kinder", "personnes_enfants",
    "hijos", "liczba dzieci", "household_size", "Haushaltsgröße", "family members", "country_of_birth",
]  # fmt: skip
INCREASING = [
    "education", "education_num", "Schulabschluss", "wykształcenie", "years_employed", "employment_years",
    "Betriebszugehörigkeit", "antigüedad", "tenure", "account_age", "months as customer",
    "MSinceOldestTradeOpen",     "NumTrades60Ever2DerogPubRec", "priors_count", "number_of_previous_loans",
]  # fmt: skip
NOTHING = [
    "income", "page", "alternative", "usage", "average", "essex", "sextant", "loan_amount", "trace",
    "credit_score",    "owns_home", "open_lines", "bearing", "message", "debt_ratio", "mortgage", "racecar",
    "agency", "Kindle",
]  # fmt: skip


@pytest.mark.parametrize("name", IMMUTABLE)
def test_names_of_what_nobody_changes_are_known_in_several_languages(name):
    assert find_meaning(name).proposal == "immutable"


@pytest.mark.parametrize("name", INCREASING)
def test_names_of_what_only_grows_are_known_in_several_languages(name):
    assert find_meaning(name).proposal == "increasing"


@pytest.mark.parametrize("name", NOTHING)
def test_names_that_only_contain_such_a_word_mean_nothing(name):
    assert find_meaning(name) is None


def test_words_of_the_lists_are_as_names_are_split():
    meanings, identifiers = read_meanings()
    for word in (*identifiers, *(w for m in meanings for w in (*m.words, *m.beside, *m.without))):
        stem = word.removesuffix("*")
        assert stem == "last12" or stem == "12m" or words_of(stem) == {stem}, word


def table(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "customer_id": np.arange(n) * 7 + 100_000,
            "age": rng.integers(18, 80, n),
            "years_employed": rng.integers(0, 30, n),
            "education": rng.choice(["school", "degree"], n),
            "income": rng.integers(10, 90, n) * 100,
            "days_since_contact": np.where(rng.random(n) < 0.5, 999, rng.integers(1, 31, n)),
            "rent": rng.random(n) * 1000,
            "noise": rng.random(n),
            "kind": rng.choice(["a", "b"], n),
        }
    )


def kinds(suggested):
    return {(one.feature, one.kind, one.active) for one in suggested}


def test_names_and_values_give_rules_steps_and_special_values_with_reasons():
    suggested = pf.suggest_rules(table())
    assert ("age", "immutable", True) in kinds(suggested)
    assert ("years_employed", "increasing", True) in kinds(suggested)
    assert ("education", "increasing", False) in kinds(suggested)
    assert suggested.steps == {"income": 100.0}
    assert suggested.special == {"days_since_contact": [999.0]}
    assert all(one.reason for one in suggested)
    assert "education" not in str(suggested.constraints)
    assert any("customer_id" in note for note in suggested.notes)
    assert list(suggested.to_frame()["feature"]) == [one.feature for one in suggested]


def test_an_ordered_education_may_only_rise():
    own = table().assign(
        education=lambda x: pd.Categorical(x["education"], ["school", "degree"], ordered=True)
    )
    assert ("education", "increasing", True) in kinds(pf.suggest_rules(own))


def test_a_step_that_nearly_all_values_keep_is_proposed_with_the_share():
    own = table(400)
    rng = np.random.default_rng(1)
    own["amount"] = np.where(
        rng.random(400) < 0.95, rng.integers(1, 60, 400) * 500, rng.integers(1, 30000, 400)
    )
    (step,) = [one for one in pf.suggest_rules(own) if one.feature == "amount"]
    assert step.value == (500.0,)
    share = (own["amount"] % 500 == 0).mean()
    assert f"{100 * share:.1f} %" in step.reason


def test_a_name_without_fitting_values_is_only_to_consider():
    own = table().assign(tenure=np.random.default_rng(2).normal(size=200))
    assert ("tenure", "increasing", False) in kinds(pf.suggest_rules(own))


def test_a_column_that_identifies_rows_is_proposed_where_the_table_does_not_say_so():
    assert is_identifier("KundenNr_id")
    own = table().assign(customer_id=np.random.default_rng(0).permutation(200).repeat(1) % 150)
    assert ("customer_id", "immutable", True) in kinds(pf.suggest_rules(own))


def forest(own, used):
    y = (own[used].sum(axis=1) > own[used].sum(axis=1).median()).map({True: "yes", False: "no"})
    fitted = RandomForestClassifier(10, random_state=0).fit(own[used], y)
    return lambda rows: fitted.predict_proba(rows[used])[:, 1]


def test_columns_that_the_model_ignores_are_proposed_and_used_ones_are_not():
    own = table()
    suggested = pf.suggest_rules(own, forest(own, ["income", "rent"]))
    reasons = {one.feature: one for one in suggested if "ignores" in one.reason}
    assert {"noise", "kind"} <= set(reasons)
    assert not {"income", "rent", "age"} & set(reasons)
    assert reasons["noise"].active
    assert not any("No model" in note for note in suggested.notes)


def test_an_ignored_column_that_follows_from_others_is_only_to_consider():
    own = table().assign(rent=lambda x: 3.3 * x["income"] + np.random.default_rng(3).normal(size=200))
    suggested = pf.suggest_rules(own, forest(own, ["income"]))
    assert ("rent", "immutable", False) in kinds(suggested)
    assert ("noise", "immutable", True) in kinds(suggested)


def test_a_model_that_cannot_be_called_is_a_note():
    def broken(rows):
        raise ValueError("no")

    suggested = pf.suggest_rules(table(), broken)
    assert any("could not be called" in note for note in suggested.notes)
    assert ("age", "immutable", True) in kinds(suggested)
    assert any("encoded rows" in note for note in pf.suggest_rules(table(), pf.LinearClassifier()).notes)


def test_few_rows_say_nothing_about_the_model():
    suggested = pf.suggest_rules(table(20), lambda rows: rows["income"].to_numpy() / 1e4)
    assert any("fewer than 30 rows" in note for note in suggested.notes)
    assert not any("ignores" in one.reason for one in suggested)


def test_a_function_that_returns_probabilities_can_be_asked():
    own = table()[["income", "rent", "noise"]]
    y = (own["income"] > 5000).map({True: "yes", False: "no"})
    fitted = RandomForestClassifier(5, random_state=0).fit(own[["income"]], y)
    model = lambda rows: fitted.predict_proba(rows[["income"]])  # noqa: E731
    suggested = pf.suggest_rules(own, model)
    assert {one.feature for one in suggested if "ignores" in one.reason} == {"rent", "noise"}


def test_the_file_is_read_as_the_settings_that_were_proposed(tmp_path):
    suggested = pf.suggest_rules(table())
    path = tmp_path / "rules.toml"
    path.write_text(suggested.to_toml("200 rows"))
    file = read_rules(path, list(table().columns))
    assert list(file.constraints) == suggested.constraints
    assert file.steps == suggested.steps
    assert file.special == suggested.special
    for one in suggested:
        assert one.reason in path.read_text()


def test_names_that_are_odd_stay_one_line_of_the_file():
    name = 'age "quoted"\n# ]'
    own = table().rename(columns={"age": name})
    document = tomllib.loads(pf.suggest_rules(own).to_toml("a\nb = 1"))
    assert document["immutable"] == [name]
    assert "b" not in document


def test_a_table_without_rows_is_refused():
    with pytest.raises(InvalidInputError, match="without rows"):
        pf.suggest_rules(table().iloc[:0])
    with pytest.raises(InvalidInputError, match="must be a DataFrame"):
        pf.suggest_rules([[1, 2]])


def test_proposed_steps_and_special_values_are_those_that_the_table_shows():
    """Writing them down changes nothing: a person only confirms them."""
    from plausiflow.tables import Schema

    own = pf.load_table("loans").split(300, 10)[0].x
    suggested = pf.suggest_rules(own)
    assert suggested.steps
    assert Schema.infer(own, steps=suggested.steps, special=suggested.special) == Schema.infer(own)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")
def test_with_the_rules_for_loans_no_answer_changes_dependents_and_as_many_are_found():
    train, test = pf.load_table("loans").split(1500, 400)
    suggested, own = pf.suggest_rules(train.x), pf.Linear("loan_amount <= 0.6 * income")
    plain = [pf.Immutable("age", "sex"), pf.Increasing("education"), pf.Increasing("years_employed"), own]
    found, changed = [], []
    for settings in (
        {"constraints": plain},
        {
            "constraints": [*suggested.constraints, own],
            "steps": suggested.steps,
            "special": suggested.special,
        },
    ):
        explainer = pf.Explainer(pf.MLPClassifier(hidden=(64, 64), random_state=0), **settings)
        explainer.fit(train.x, train.y, verbose=False)
        rejected = test.x[explainer.predict(test.x) == "rejected"]
        result = explainer.explain(rejected, "granted", verbose=False)
        found.append(int(result.is_found.sum()))
        changed.append(int((result.changes["feature"] == "dependents").sum()))
    assert changed[0] > 0 == changed[1]
    assert found[0] == found[1]


def test_a_table_of_every_kind_of_column_gets_proposals_with_and_without_a_model():
    rng, n = np.random.default_rng(0), 120
    odd = pd.DataFrame(
        {
            "Age": np.append(np.nan, rng.integers(18, 80, n - 1).astype(float)),
            "flag": rng.random(n) < 0.5,
            "count": pd.array([None if i % 7 == 0 else i % 5 for i in range(n)], dtype="Int64"),
            "text": pd.Series(rng.choice(["a", "b", None], n), dtype=object),
            "constant": 1,
            "big": rng.normal(size=n) * 1e12,
            "tiny": rng.random(n) * 1e-9,
            "category": pd.Categorical(rng.choice(["x", "y"], n)),
            "string": pd.array(rng.choice(["p", "q", None], n), dtype="string"),
        }
    )

    def model(rows):
        return 1 / (1 + np.exp(-(rows["Age"].fillna(0).to_numpy() - 40) / 5))

    for asked in (None, model):
        suggested = pf.suggest_rules(odd, asked)
        assert ("Age", "immutable", True) in kinds(suggested)
        assert suggested.steps == {}
        assert tomllib.loads(suggested.to_toml())["immutable"]
    ignored = {one.feature for one in suggested if "ignores" in one.reason}
    assert ignored == {"flag", "count", "text", "big", "tiny", "category", "string"}
