#pragma once
// SPDX-License-Identifier: Apache-2.0
// The words of a small invented world: who and what there is, before anything happens in it.

#include <array>
#include <string_view>
#include <utility>

namespace finetune::quickstart::world {

using namespace std::string_view_literals;

inline constexpr std::array names = {"Mara"sv, "Tam"sv,  "Lio"sv,  "Nell"sv, "Bram"sv, "Suri"sv,
                                     "Odo"sv,  "Pell"sv, "Ina"sv,  "Goro"sv, "Wim"sv,  "Zara"sv,
                                     "Kip"sv,  "Dova"sv, "Rusk"sv, "Fenn"sv, "Yola"sv, "Hib"sv,
                                     "Vesa"sv, "Jory"sv, "Ebba"sv, "Cato"sv, "Lune"sv, "Timo"sv};

inline constexpr std::array objects = {
    "ball"sv,  "kite"sv,  "boat"sv,  "lamp"sv,   "key"sv,    "drum"sv,   "hat"sv,     "coat"sv,
    "cup"sv,   "book"sv,  "bell"sv,  "rope"sv,   "basket"sv, "map"sv,    "coin"sv,    "ring"sv,
    "spoon"sv, "box"sv,   "flute"sv, "mirror"sv, "ladder"sv, "bucket"sv, "blanket"sv, "candle"sv,
    "brush"sv, "wheel"sv, "stone"sv, "shell"sv,  "letter"sv, "clock"sv,  "ribbon"sv,  "chair"sv};

inline constexpr std::array colours = {"red"sv,   "blue"sv, "green"sv,  "yellow"sv, "white"sv,
                                       "black"sv, "grey"sv, "purple"sv, "orange"sv, "brown"sv};

inline constexpr std::array places = {
    "kitchen"sv, "garden"sv, "barn"sv, "forest"sv, "market"sv,   "harbour"sv,
    "tower"sv,   "school"sv, "mill"sv, "cellar"sv, "meadow"sv,   "library"sv,
    "bakery"sv,  "stable"sv, "cave"sv, "tent"sv,   "workshop"sv, "orchard"sv,
    "hall"sv,    "attic"sv,  "shed"sv, "cabin"sv,  "chapel"sv,   "village"sv};

inline constexpr std::array animals = {
    "fox"sv, "owl"sv,  "hen"sv,  "goat"sv, "horse"sv, "otter"sv, "mouse"sv,  "cat"sv,
    "dog"sv, "duck"sv, "bear"sv, "hare"sv, "crow"sv,  "frog"sv,  "snake"sv,  "bee"sv,
    "cow"sv, "wolf"sv, "deer"sv, "mole"sv, "swan"sv,  "toad"sv,  "badger"sv, "sheep"sv};

inline constexpr std::array foods = {
    "apples"sv, "pears"sv, "plums"sv, "nuts"sv,   "eggs"sv,  "carrots"sv, "onions"sv, "cakes"sv,
    "beans"sv,  "figs"sv,  "peas"sv,  "grapes"sv, "leeks"sv, "pies"sv,    "buns"sv,   "cherries"sv};

inline constexpr std::array jobs = {"baker"sv,  "miller"sv, "sailor"sv, "teacher"sv,
                                    "farmer"sv, "smith"sv,  "weaver"sv, "painter"sv,
                                    "hunter"sv, "doctor"sv, "singer"sv, "gardener"sv,
                                    "tailor"sv, "mason"sv,  "fisher"sv, "potter"sv};

inline constexpr std::array numbers = {"two"sv, "three"sv,  "four"sv,  "five"sv,
                                       "six"sv, "seven"sv,  "eight"sv, "nine"sv,
                                       "ten"sv, "eleven"sv, "twelve"sv};

/// Each word is the opposite of the other.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 40> opposites = {{
    {"hot", "cold"},    {"big", "small"},    {"long", "short"},     {"old", "young"},
    {"fast", "slow"},   {"full", "empty"},   {"high", "low"},       {"wet", "dry"},
    {"light", "dark"},  {"hard", "soft"},    {"loud", "quiet"},     {"rich", "poor"},
    {"open", "closed"}, {"early", "late"},   {"near", "far"},       {"left", "right"},
    {"up", "down"},     {"day", "night"},    {"summer", "winter"},  {"good", "bad"},
    {"strong", "weak"}, {"thick", "thin"},   {"wide", "narrow"},    {"clean", "dirty"},
    {"happy", "sad"},   {"sweet", "sour"},   {"true", "false"},     {"smooth", "rough"},
    {"brave", "timid"}, {"first", "last"},   {"inside", "outside"}, {"always", "never"},
    {"above", "under"}, {"before", "after"}, {"laugh", "cry"},      {"win", "lose"},
    {"come", "go"},     {"push", "pull"},    {"buy", "sell"},       {"begin", "end"},
}};

}  // namespace finetune::quickstart::world
