// SPDX-License-Identifier: Apache-2.0
#include "report/detail/html.hpp"

#include <fmt/format.h>

#include "plot/svg.hpp"

namespace finetune::report::detail {
namespace {

using plot::escaped;

constexpr std::string_view page_style = R"(
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:40px 28px 64px}
header p{margin:0;color:var(--soft)}h1{margin:2px 0 6px;font-size:30px;line-height:1.2;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{margin:44px 0 14px;font-size:18px;border-top:1px solid var(--rule);padding-top:18px}
h3{margin:18px 0 8px;font-size:15px}p{max-width:75ch}h3,p,figcaption{overflow-wrap:anywhere}
.state{font-weight:600}.state.finished,.state.running,.state.starting{color:var(--good)}
.state.hung,.state.dead,.state.failed{color:var(--bad)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:14px 24px;margin:22px 0 0}
dl div{min-width:0}dt{color:var(--soft);font-size:13px}dd{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:28px 36px}dl+.figures{margin-top:18px}
figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:2px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:0 0 4px;font-size:13px;color:var(--soft);min-height:20px}
.legend span{min-width:0;overflow-wrap:anywhere}.legend svg{width:12px;height:9px;margin-right:6px}
.scroll{overflow-x:auto;margin:8px 0 0}
table{border-collapse:collapse;font-size:14px}
th{text-align:left;font-weight:500;color:var(--soft);font-size:13px;white-space:nowrap}
th,td{padding:6px 26px 6px 0;border-bottom:1px solid var(--rule);vertical-align:top}
td{font-variant-numeric:tabular-nums;white-space:nowrap}th.n,td.n{text-align:right}
td.long{white-space:pre-wrap;min-width:150px;max-width:60ch;overflow-wrap:anywhere}
.note{color:var(--soft);font-size:13px;margin:10px 0 0}
details{margin-top:14px}summary{cursor:pointer;color:var(--soft)}
pre{background:var(--tint);padding:14px 16px;overflow-x:auto;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
footer{margin-top:56px;color:var(--soft);font-size:13px}
@media (max-width:640px){main{padding:24px 16px 40px}h1{font-size:24px}.plot text{font-size:18px}
dl{grid-template-columns:repeat(auto-fill,minmax(130px,1fr));gap:12px 16px}th,td{padding-right:12px}}
@media print{main{max-width:none;padding:0}body{font-size:10.5pt}h2{break-after:avoid;margin-top:26px}
figure,tr{break-inside:avoid}.plot text{font-size:15px}.figures{grid-template-columns:1fr 1fr;gap:18px 24px}pre{white-space:pre-wrap}}
)";

}  // namespace

std::string table(const std::vector<std::string>& head, const std::vector<TableRow>& rows) {
  if (rows.empty()) return "";
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t i = 0; i < head.size(); ++i) {
    const bool is_number = i < rows.front().size() && rows.front()[i].is_number;
    out += fmt::format("<th{}>{}</th>", is_number ? " class=\"n\"" : "", escaped(head[i]));
  }
  out += "</tr></thead><tbody>\n";
  for (const TableRow& row : rows) {
    out += "<tr>";
    for (const Cell& cell : row)
      out += fmt::format("<td{}>{}</td>",
                         cell.is_number ? " class=\"n\""
                         : cell.is_long ? " class=\"long\""
                                        : "",
                         escaped(cell.text));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string out;
  for (const auto& [name, value] : rows)
    if (!value.empty())
      out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(value));
  return out.empty() ? "" : "<dl>\n" + out + "</dl>\n";
}

std::string section(std::string_view title, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escaped(title), content);
}

std::string document(std::string_view title, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      escaped(title), plot::style_sheet(), page_style, body);
}

}  // namespace finetune::report::detail
