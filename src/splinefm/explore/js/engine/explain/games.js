// Terms of the score in which crosses take part, as small games of the columns that they read.
//
// A term is what one cross adds alone, or a product of a cross with one or two other fields. To a coalition of the
// columns of its fields it is worth its mean over the rows of the background, with the coalition's columns taken from
// the explained row. The *state* of a cross is its vector with some columns from the row and the others from the
// background. A coalition is a number whose bit i says whether player i belongs to it.

import { Terms } from "../encode/fields.js";
import { Units, dot } from "../formula.js";
import { unitSums } from "./triples.js";

/** All players of several fields, and for every coalition of them the coalition of each field's players. */
export function joinPlayers(...players) {
  const together = [...new Set(players.flat())].sort((a, b) => a - b);
  const ofEach = players.map((own) =>
    Array.from({ length: 1 << together.length }, (_, coalition) =>
      own.reduce((bits, player, i) => bits | (((coalition >> together.indexOf(player)) & 1) << i), 0),
    ),
  );
  return { together, ofEach };
}

/** Adds the Shapley values of a game, given the worth of every coalition of its players. */
export function addGame(players, worth, shares) {
  const n = players.length;
  for (let i = 0; i < n; ++i) {
    for (let coalition = 0; coalition < 1 << n; ++coalition) {
      if ((coalition >> i) & 1) continue;
      let others = 0;
      for (let bits = coalition; bits; bits &= bits - 1) ++others;
      shares[players[i]] += (worth[coalition | (1 << i)] - worth[coalition]) / (n * binomial(n - 1, others));
    }
  }
}

function binomial(n, k) {
  let value = 1;
  for (let i = 1; i <= k; ++i) value = (value * (n - k + i)) / i;
  return value;
}

/** The vectors of a cross for all coalitions of its columns; of the full coalition they do not depend on the background. */
class States {
  constructor(cross, units, full) {
    Object.assign(this, { cross, units, full });
  }

  /** Where the vector for row b of the background begins. */
  at(coalition, b, width) {
    return coalition === this.full ? 0 : b * width;
  }

  vectors(coalition) {
    return this.units[coalition].vectors;
  }
}

/** Shapley values of all terms with crosses. */
export class CrossShares {
  /**
   * @param {object} shapley
   * @param {object} explain of the payload
   * @param {Int32Array} rows of the data that are the background
   */
  constructor(shapley, explain, rows) {
    this.shapley = shapley;
    this.n = rows.length;
    const { model } = shapley;
    this.crosses = shapley.ofField.map((_, f) => f).filter((f) => shapley.ofField[f].length > 1);
    this.parts = explain.of_parts;
    this.terms = new Terms();
    this.values = Array.from(rows, (i) => model.rows.values(i));
    this.fields = [];
    this.sums = [];
    this.none = new Map(this.crosses.map((f) => [f, new Units(shapley.formula.width, this.n)]));
    const { width } = shapley.formula;
    for (const values of this.values) {
      const units = model.unitsOf(values, shapley.output);
      const fields = shapley.fieldVectors(units);
      this.fields.push(fields);
      if (shapley.triples) this.sums.push(this.unitSums(units));
      for (const f of this.crosses) {
        const own = this.none.get(f);
        const at = own.push(f);
        own.vectors.set(fields.vectors.subarray(f * width, (f + 1) * width), at * width);
        own.linear[at] = fields.linear[f];
      }
    }
    this.places = new Map(this.crosses.map((f) => [f, this.values.map((values) => this.placesOf(f, values))]));
    this.toward = new Map();
  }

  unitSums(units) {
    const { formula, players } = this.shapley;
    return unitSums(formula, units, this.shapley.playersOf(units), players.length);
  }

  /** Where the values of the parts of a cross are. */
  placesOf(f, values) {
    const { encoder, sources } = this.shapley.model.fields[f];
    return sources.map((source, i) => encoder.place(i, values[source]));
  }

  /** Adds what all terms contribute to the players. */
  addShares(values, units, shares) {
    const mine = this.shapley.fieldVectors(units);
    const states = this.crosses.map((f) => this.statesOf(f, this.placesOf(f, values), mine));
    states.forEach((state, i) => {
      this.addAlone(state, shares);
      this.addPairs(state, mine, shares);
      for (const other of states.slice(i + 1)) this.addCrossPairs(state, other, shares);
    });
    if (this.shapley.triples) this.addTriples(states, this.unitSums(units), shares);
  }

  /** The states of a cross for an explained row. */
  statesOf(f, places, mine) {
    const { formula, ofField, model } = this.shapley;
    const players = ofField[f];
    const { encoder } = model.fields[f];
    const full = (1 << players.length) - 1;
    const units = [this.none.get(f)];
    for (let coalition = 1; coalition < full; ++coalition) {
      const inside = this.parts[f].map((player) => (coalition >> players.indexOf(player)) & 1);
      this.terms.clear();
      for (const theirs of this.places.get(f)) {
        encoder.addPlaces(
          theirs.map((place, i) => (inside[i] ? places[i] : place)),
          this.terms,
        );
        this.terms.endUnit(f);
      }
      units.push(formula.addUnits(this.terms, new Units(formula.width, this.n)));
    }
    const own = new Units(formula.width, 1);
    own.push(f);
    own.vectors.set(mine.vectors.subarray(f * formula.width, (f + 1) * formula.width));
    own.linear[0] = mine.linear[f];
    units.push(own);
    return new States(f, units, full);
  }

  /** Linear parts. */
  addAlone(state, shares) {
    const worth = state.units.map(({ linear, n }) => linear.subarray(0, n).reduce((sum, value) => sum + value, 0) / n);
    addGame(this.shapley.ofField[state.cross], worth, shares);
  }

  /** M_fe s_e of a field e of the background, in the coordinates of a cross f that it meets: `part` numbers per row. */
  backgroundToward(f, e) {
    const key = `${f},${e}`;
    let found = this.toward.get(key);
    if (!found) {
      const { part } = this.shapley.formula;
      found = new Float64Array(this.n * part);
      this.fields.forEach((fields, b) => found.set(this.towardOf(f, e, fields.vectors, e), b * part));
      this.toward.set(key, found);
    }
    return found;
  }

  /** M_fe s_e, where s_e is vector number `at` of some. */
  towardOf(f, e, vectors, at) {
    const { formula } = this.shapley;
    const slope = new Float64Array(formula.width);
    formula.addSlope(f, e, vectors, at * formula.width, slope);
    return slope.subarray(formula.columns[e], formula.columns[e] + formula.part);
  }

  /** Products with fields that are not crosses. */
  addPairs(state, mine, shares) {
    const { formula, ofField } = this.shapley;
    const { width, part, columns } = formula;
    const f = state.cross;
    ofField.forEach((players, e) => {
      if (players.length > 1) return;
      const theirs = this.backgroundToward(f, e);
      const own = this.towardOf(f, e, mine.vectors, e);
      const worth = (coalition, isMine) => {
        let sum = 0;
        for (let b = 0; b < this.n; ++b) {
          const at = state.at(coalition, b, width) + columns[e];
          sum += dot(state.vectors(coalition), at, isMine ? own : theirs, isMine ? 0 : b * part, part);
        }
        return sum / this.n;
      };
      this.addProduct([ofField[f], players], worth, shares);
    });
  }

  /** Products of two crosses. */
  addCrossPairs(state, other, shares) {
    const { formula, ofField } = this.shapley;
    const { width, part, columns } = formula;
    const [f, e] = [state.cross, other.cross];
    const toward = other.units.map((units) => {
      const found = new Float64Array(units.n * part);
      for (let b = 0; b < units.n; ++b) found.set(this.towardOf(f, e, units.vectors, b), b * part);
      return found;
    });
    const worth = (mine, theirs) => {
      let sum = 0;
      for (let b = 0; b < this.n; ++b) {
        const at = state.at(mine, b, width) + columns[e];
        sum += dot(state.vectors(mine), at, toward[theirs], other.at(theirs, b, part), part);
      }
      return sum / this.n;
    };
    this.addProduct([ofField[f], ofField[e]], worth, shares);
  }

  /** Adds a game whose worth depends on the coalition of each of its fields; each is computed once. */
  addProduct(players, worth, shares) {
    const { together, ofEach } = joinPlayers(...players);
    const known = new Map();
    const worths = Array.from({ length: 1 << together.length }, (_, coalition) => {
      const own = ofEach.map((of) => of[coalition]);
      const key = own.reduce((sum, bits) => sum * 64 + bits, 0);
      if (!known.has(key)) known.set(key, worth(...own));
      return known.get(key);
    });
    addGame(together, worths, shares);
  }

  /** Products of three units, of which one to three are crosses. */
  addTriples(states, mine, shares) {
    states.forEach((state, i) => {
      this.addWithTwo(state, mine, shares);
      states.slice(i + 1).forEach((other, j) => {
        this.addWithOne(state, other, mine, shares);
        for (const third of states.slice(i + j + 2)) this.addThree([state, other, third], shares);
      });
    });
  }

  /** A cross with two units of other players, or of one. */
  addWithTwo(state, mine, shares) {
    const { ofField, players } = this.shapley;
    const own = ofField[state.cross];
    const one = (isMine, b, name) => (isMine ? mine[name] : this.sums[b][name]);
    for (let j = 0; j < players.length; ++j) {
      for (let l = j + 1; l < players.length; ++l) {
        const worth = (coalition, first, second) =>
          this.meanProduct(
            state,
            coalition,
            (b) => [one(first, b, "a"), j],
            (b) => [one(second, b, "a"), l],
          );
        this.addProduct([own, [j], [l]], worth, shares);
      }
      const twice = (coalition, isMine) => this.meanProduct(state, coalition, (b) => [one(isMine, b, "b"), j]);
      this.addProduct([own, [j]], twice, shares);
    }
  }

  /** The mean over the background of Σ_t state_t Π others_t, where others are arrays and the number of a player. */
  meanProduct(state, coalition, first, second = null) {
    const { formula } = this.shapley;
    const size = formula.productTo - formula.productFrom;
    const vectors = state.vectors(coalition);
    let sum = 0;
    for (let b = 0; b < this.n; ++b) {
      const at = state.at(coalition, b, formula.width) + formula.productFrom;
      const [x, j] = first(b);
      if (second) {
        const [y, l] = second(b);
        for (let t = 0; t < size; ++t) sum += vectors[at + t] * x[j * size + t] * y[l * size + t];
      } else {
        for (let t = 0; t < size; ++t) sum += vectors[at + t] * x[j * size + t];
      }
    }
    return (Math.cbrt(formula.productWeight) * sum) / this.n;
  }

  /** Two crosses with a unit of another player. */
  addWithOne(state, other, mine, shares) {
    const { ofField, players } = this.shapley;
    for (let j = 0; j < players.length; ++j) {
      const worth = (first, second, isMine) =>
        this.meanOfStates([state, other], [first, second], (b) => (isMine ? mine.a : this.sums[b].a), j);
      this.addProduct([ofField[state.cross], ofField[other.cross], [j]], worth, shares);
    }
  }

  addThree(states, shares) {
    const worth = (...coalitions) => this.meanOfStates(states, coalitions);
    this.addProduct(
      states.map((state) => this.shapley.ofField[state.cross]),
      worth,
      shares,
    );
  }

  /** The mean over the background of the products of states, and of a player's sums if given. */
  meanOfStates(states, coalitions, sums = null, player = 0) {
    const { formula } = this.shapley;
    const size = formula.productTo - formula.productFrom;
    let total = 0;
    for (let b = 0; b < this.n; ++b) {
      const begins = states.map((state, i) => state.at(coalitions[i], b, formula.width) + formula.productFrom);
      const a = sums ? sums(b) : null;
      for (let t = 0; t < size; ++t) {
        let product = a ? a[player * size + t] : 1;
        for (let i = 0; i < states.length; ++i) product *= states[i].vectors(coalitions[i])[begins[i] + t];
        total += product;
      }
    }
    return (Math.cbrt(formula.productWeight) ** states.length * total) / this.n;
  }
}
