"""Everything expensive: noise, forward passes, votes. A schedule wants blocks, an executor returns their votes."""
