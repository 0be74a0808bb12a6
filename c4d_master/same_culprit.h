// Whether a finding of now and a verdict of before are about the same culprit, which may be known better by
// now than it was: connections become their NIC's or their link's.
//
// Pure functions; any thread; no errors.
#pragma once

#include "c4/v1/c4d.pb.h"
#include "c4d_master/finding.h"

namespace c4::c4d {

// The same connections, in the same order.
bool SameConnections(const Finding& finding, const v1::Culprit& culprit);

// They share a connection or a candidate.
bool Overlap(const Finding& finding, const v1::Culprit& culprit);

// Of several that died, one may have been told of before the others were found.
bool IsOneOf(const Finding& finding, const v1::Culprit& culprit);

bool SameCulprit(const Finding& finding, const v1::Verdict& verdict);

}  // namespace c4::c4d
