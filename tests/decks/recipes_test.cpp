// SPDX-License-Identifier: Apache-2.0
// The decks of inputs/recipes are what their head comments say: they fit the machine they name, in
// the memory they name, and hold nothing but what differs from the defaults.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/folders.hpp"
#include "support/run_program.hpp"

namespace finetune::tests::recipes_test {
namespace {

namespace fs = std::filesystem;

const fs::path folder = source_folder() / "inputs/recipes";
/// A GPU's driver and libraries and the network's buffers take their part, which no plan knows.
constexpr double usable = 0.99;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> recipes() {
  std::vector<fs::path> decks;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".toml") decks.push_back(entry.path());
  std::ranges::sort(decks);
  return decks;
}

/// What the lines "# name: value" above a deck's first table say; further lines begin with "#   ".
std::map<std::string, std::string> head_of(const fs::path& deck) {
  static const std::regex entry("# ([a-z]+): (.+)");
  std::map<std::string, std::string> head;
  std::istringstream lines(read(deck));
  std::smatch match;
  std::string last;
  for (std::string line; std::getline(lines, line) && line.starts_with("#");) {
    if (std::regex_match(line, match, entry))
      head[last = match[1]] = match[2];
    else if (line.starts_with("#   ") && !last.empty())
      head[last] += line.substr(3);
  }
  return head;
}

struct Machine {
  int num_nodes = 0;
  int gpus_per_node = 0;
  int gib = 0;  ///< of one GPU
};

/// The folder of inputs/recipes/models that a deck names.
std::string model_of(const fs::path& deck) {
  static const std::regex path("\npath = \"models/([^\"]+)\"\n");
  const std::string text = read(deck);
  std::smatch match;
  return std::regex_search(text, match, path) ? match[1].str() : "none";
}

/// As their makers count them. GPTQ-Int4 of the 72B model: its feed-forward is padded from 29,568
/// to 29,696 in 80 layers.
const std::map<std::string, std::int64_t> published_parameters = {
    {"Llama-2-70B", 68976648192},
    {"Llama-2-70B-8k", 68976648192},
    {"Llama-2-7B", 6738415616},
    {"Llama-3-8B-Gradient-1048k", 8030261248},
    {"Llama-3.1-405B", 405853388800},
    {"Llama-3.1-8B", 8030261248},
    {"Llama-3.3-70B", 70553706496},
    {"Mistral-7B-v0.3", 7248023552},
    {"Qwen2.5-14B", 14770033664},
    {"Qwen2.5-14B-Instruct-GPTQ-Int4", 14770033664},
    {"Qwen2.5-72B", 72706203648},
    {"Qwen2.5-72B-Instruct-GPTQ-Int4", 72706203648 + std::int64_t{80} * 3 * 8192 * 128},
    {"Qwen2.5-7B", 7615616512},
    {"Qwen2.5-7B-Instruct-GPTQ-Int4", 7615616512},
    {"Qwen3-235B-A22B", 235093634560},
    {"TinyLlama-1.1B", 1100048384}};

/// "2 nodes x 8 GPUs of 80 GiB"
Machine parse_machine(const std::string& text) {
  static const std::regex words("([0-9]+) nodes? x ([0-9]+) GPUs? of ([0-9]+) GiB");
  std::smatch match;
  if (!std::regex_match(text, match, words)) return {};
  return {std::stoi(match[1]), std::stoi(match[2]), std::stoi(match[3])};
}

/// "70.5 GiB a GPU, planned"
double parse_memory(const std::string& text) {
  static const std::regex words("([0-9.]+) GiB a GPU, planned");
  std::smatch match;
  return std::regex_match(text, match, words) ? std::stod(match[1]) : 0;
}

/// `memory`: of one GPU.
Outcome plan(const std::string& deck, const Machine& machine, const std::string& memory) {
  const int ranks = machine.num_nodes * machine.gpus_per_node;
  std::vector<std::string> words = {"plan", deck, "--gpu"};
  words.insert(words.end(), {"--ranks", std::to_string(ranks)});
  words.insert(words.end(), {"--ranks-per-node", std::to_string(machine.gpus_per_node)});
  words.insert(words.end(), {"--memory", memory});
  return run_program(finetune_on(1, words), source_folder());
}

std::string usable_memory(const Machine& machine) {
  return std::to_string(usable * machine.gib) + "GiB";
}

/// The number that `line` finds in a plan, without its commas; 0 if it finds none.
double number_of(const std::string& plan, const std::regex& line) {
  std::smatch match;
  if (!std::regex_search(plan, match, line)) return 0;
  std::string digits = match[1];
  std::erase(digits, ',');
  return std::stod(digits);
}

class Recipe : public testing::TestWithParam<fs::path> {
 protected:
  const std::string name = GetParam().stem().string();
  const std::string deck = "inputs/recipes/" + name + ".toml";
  std::map<std::string, std::string> head = head_of(GetParam());
  const Machine machine = parse_machine(head["machine"]);
};

TEST_P(Recipe, FitsItsMachineInTheMemoryItNamesWithThePublishedModel) {
  ASSERT_GT(machine.num_nodes, 0) << "# machine: " << head["machine"];
  const double expected = parse_memory(head["memory"]);
  ASSERT_GT(expected, 0) << "# memory: " << head["memory"];
  const Outcome outcome = plan(deck, machine, usable_memory(machine));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  // Some of the sources train with batches that this program calls small.
  static const std::regex small("warning: train\\.global_batch = [0-9]+: is small [^\n]+\n");
  EXPECT_EQ(std::regex_replace(outcome.err, small, ""), "");
  static const std::regex memory("memory per rank +([0-9.]+) GiB");
  EXPECT_NEAR(number_of(outcome.out, memory), expected, 0.03 * expected) << outcome.out;

  static const std::regex parameters("parameters +([0-9,]+)"), trained("([0-9,]+) of them trained");
  const auto published = published_parameters.find(model_of(GetParam()));
  ASSERT_NE(published, published_parameters.end()) << model_of(GetParam());
  // An adapter counts as well.
  EXPECT_EQ(number_of(outcome.out, parameters) - number_of(outcome.out, trained), published->second)
      << outcome.out;
}

TEST_P(Recipe, SaysWhereItComesFromAndHowToStartIt) {
  EXPECT_GT(head["source"].size(), 40u);
  EXPECT_TRUE(name.ends_with("-" + std::to_string(machine.num_nodes) + "x" +
                             std::to_string(machine.gpus_per_node)));
  const std::string gpus = std::to_string(machine.gpus_per_node);
  std::string command = "build/finetune ";
  if (machine.num_nodes > 1)
    command = "sbatch -N" + std::to_string(machine.num_nodes) + " --ntasks-per-node=" + gpus +
              " --gpus-per-node=" + gpus +
              " --cpus-per-task=8 --time=24:00:00 jobscripts/slurm/train.sh ";
  else if (machine.gpus_per_node > 1)
    command = "mpirun -n " + gpus + " build/finetune ";
  EXPECT_TRUE(head["start"].starts_with(command + deck + " model.path=MODEL data.path=DATA"))
      << head["start"];
}

TEST_P(Recipe, HasARowInTheReadme) {
  const std::string row = "| [" + name + "](" + name + ".toml) | " + head["machine"] + " | ";
  std::istringstream lines(read(folder / "README.md"));
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(row)) found = line;
  ASSERT_NE(found, "") << row;
  const std::string memory = head["memory"].substr(0, head["memory"].find(" a GPU"));
  EXPECT_TRUE(found.ends_with(" | " + memory + " |")) << found;
}

struct Key {
  std::string table_and_name, value;
};

/// The keys of a deck in their order; those that are commented out as in a reference, too.
std::vector<Key> keys_of(const std::string& text) {
  static const std::regex table(R"(\[([a-z]+)\])"), key("(?:# )?([a-z0-9_]+) = (.*)");
  std::vector<Key> keys;
  std::istringstream lines(text);
  std::smatch match;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, table))
      name = match[1];
    else if (std::regex_match(line, match, key))
      keys.push_back({name + "." + match[1].str(), match[2]});
  }
  return keys;
}

TEST_P(Recipe, SaysWhatDiffersFromTheDefaultsInTheirOrder) {
  static const Outcome reference = run_program(finetune_on(1, {"--reference"}), folder);
  static const std::vector<Key> known = keys_of(reference.out);
  auto place = known.begin();
  for (const Key& key : keys_of(read(GetParam()))) {
    const auto is_it = [&](const Key& other) { return other.table_and_name == key.table_and_name; };
    const auto found = std::find_if(place, known.end(), is_it);
    ASSERT_NE(found, known.end()) << key.table_and_name << " is unknown or out of order";
    // A learning rate is worth reading in any case.
    if (key.table_and_name != "optimizer.lr") {
      EXPECT_NE(found->value, key.value) << key.table_and_name << " is a default";
    }
    EXPECT_NE(key.table_and_name, "parallel.memory_gib") << "the machine has its line above";
    place = found;
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, Recipe, testing::ValuesIn(recipes()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(Recipes, RefuseAMachineThatIsTooSmallWithRemedies) {
  const Machine one_node{1, 8, 80};
  const Outcome outcome =
      plan("inputs/recipes/llama-3.3-70b-full-2x8.toml", one_node, usable_memory(one_node));
  EXPECT_EQ(outcome.exit_code, 69) << outcome.text();
  EXPECT_EQ(count(outcome.err, "error: "), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "of memory per rank (79.2 GiB are there)"), 1) << outcome.err;
  EXPECT_EQ(count(outcome.err, "16 ranks on 2 nodes saves"), 1) << outcome.err;
}

TEST(Recipes, TrainA72BModelOnFourGpusOf24GbInLessThan22) {
  const fs::path deck = folder / "qwen2.5-72b-qlora-1x4.toml";
  const Machine machine = parse_machine(head_of(deck)["machine"]);
  EXPECT_EQ(machine.num_nodes * machine.gpus_per_node, 4);
  EXPECT_EQ(machine.gib, 24);
  EXPECT_NE(read(deck).find("\nmax_seq_length = 1024\n"), std::string::npos);
  const Outcome outcome = plan("inputs/recipes/" + deck.filename().string(), machine, "22GB");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
}

// The commands of the README's part about one node.
TEST(Recipes, WriteTextsWithA72BModelIn4BitsOnOneNode) {
  const std::string readme = read(folder / "README.md");
  const std::string model = "inputs/recipes/models/Qwen2.5-72B-Instruct-GPTQ-Int4";
  const std::string command = "finetune plan " + model +
                              " --texts --ranks 8 --tp 8 --batch 16 --prompt-tokens 1024 --memory ";
  const std::size_t at = readme.find(command);
  ASSERT_NE(at, std::string::npos) << command;
  const std::size_t memory = at + command.size();
  const std::string available = readme.substr(memory, readme.find_first_of(" \n", memory) - memory);
  const auto planned = [&](const std::string& most, const std::string& batch) {
    return run_program(
        finetune_on(1, {"plan", model, "--texts", "--ranks", "8", "--tp", "8", "--batch", batch,
                        "--prompt-tokens", "1024", "--memory", most}),
        source_folder());
  };
  const Outcome outcome = planned(available, "16");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text();
  static const std::regex needed("memory per rank +([0-9.]+ GiB) at the peak");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(outcome.out, match, needed)) << outcome.out;
  EXPECT_NE(readme.find("needs " + match[1].str() + " per rank"), std::string::npos)
      << match[1] << " is what the plan says";
  const Outcome too_many = planned(available, "256");
  EXPECT_EQ(too_many.exit_code, 69) << too_many.text();
  EXPECT_EQ(count(too_many.err, "Use more ranks and --tp"), 1) << too_many.err;
}

TEST(RecipeModels, AreThoseOfTheRecipes) {
  std::set<std::string> used, there;
  for (const fs::path& deck : recipes())
    used.insert(model_of(deck));
  for (const auto& entry : fs::directory_iterator(folder / "models"))
    there.insert(entry.path().filename());
  EXPECT_EQ(used, there);
}

}  // namespace
}  // namespace finetune::tests::recipes_test
