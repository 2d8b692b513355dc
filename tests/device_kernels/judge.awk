# SPDX-License-Identifier: Apache-2.0
# Compares lines of report.awk (second file) with budgets (first file); prints what does not fit, and fails then.
function complain(text) {
  print "over budget: " text
  bad = 1
}
FNR == 1 { files++ }
/^#/ || NF == 0 { next }
files == 1 {
  rows++
  where[rows] = $1; name[rows] = $2; most[rows, 3] = $3; most[rows, 4] = $4; most[rows, 5] = $5
  next
}
{
  row = 0
  for (i = 1; i <= rows; i++) {
    star = index(name[i], "*")
    fits = star ? substr($2, 1, star - 1) == substr(name[i], 1, star - 1) : $2 == name[i]
    if (where[i] == $1 && fits) row = i
  }
  kernels++
  if (!row) {
    complain($1 ": " $2 " has no row in budgets.txt (" $3 " registers, " $4 " bytes of stack, " $5 " of spills)")
    next
  }
  used[row] = 1
  if ($3 > most[row, 3]) complain($1 ": " $2 " takes " $3 " registers of " most[row, 3])
  if ($4 > most[row, 4]) complain($1 ": " $2 " has a stack of " $4 " bytes, of " most[row, 4])
  if ($5 > most[row, 5]) complain($1 ": " $2 " spills " $5 " bytes, of " most[row, 5])
}
END {
  for (i = 1; i <= rows; i++)
    if (!used[i] && !partly) complain(where[i] ": no kernel is called " name[i])
  if (!kernels) complain("there is no kernel at all")
  exit bad
}
